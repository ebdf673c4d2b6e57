"""The face of `hbmledger expected`: one answer a rank, a stage or a line."""

from __future__ import annotations

import json

import pytest

from cli import main

ARGS = {"hidden_size": 512, "num_layers": 12, "num_attention_heads": 8, "seq_length": 1024, "micro_batch_size": 4, "padded_vocab_size": 50304,
        "bf16": True, "pipeline_model_parallel_size": 2, "world_size": 4}
KEYS = {"rank", "pp", "tp", "steady_allocated_bytes", "peak_allocated_bytes", "steady_low_bytes", "steady_high_bytes", "peak_low_bytes",
        "peak_high_bytes", "peak_instant", "assumptions", "classes_bytes", "peak_classes_bytes", "parameters"}


def asked(tmp_path, capsys, *options):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(ARGS), encoding="utf-8")
    code = main(["expected", "--args", str(path), "--microbatches", "8", *options])
    return code, capsys.readouterr().out


def test_json_has_one_object_a_rank_or_a_stage(tmp_path, capsys):
    code, out = asked(tmp_path, capsys, "--format", "json", "--gpu", "H100")
    rows = json.loads(out)
    assert code == 0
    assert [row["rank"] for row in rows] == [0, 1, 2, 3]
    assert set(rows[0]) >= KEYS
    stages = json.loads(asked(tmp_path, capsys, "--format", "json", "--gpu", "H100", "--by", "stage")[1])
    assert [stage["peak_allocated_bytes"] for stage in stages] == [rows[0]["peak_allocated_bytes"], rows[-1]["peak_allocated_bytes"]]


def test_text_names_the_peaks_instant(tmp_path, capsys):
    _, out = asked(tmp_path, capsys, "--by", "stage")
    assert "peak at" in out.splitlines()[0]
    assert out.splitlines()[2].split()[-1] == "loss"


def test_a_batch_answers_every_line_for_its_last_rank(tmp_path, capsys):
    path = tmp_path / "batch.jsonl"
    line = {"args": {"disable_bias_linear": True, "bf16": True}, "resolved_args": ARGS | {"add_bias_linear": False}, "world_size": 4,
            "num_microbatches": 8, "env": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}, "environment": "dev_dgx_h100"}
    lines = [json.dumps(line), "{", json.dumps(line | {"num_microbatches": None}), json.dumps(line | {"env": 3})]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert main(["expected", "--batch", str(path), "--format", "json"]) == 3
    good, *bad = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert good["rank"] == 3
    assert good["classes_bytes"]["workspaces"] == 96 * 2**20
    assert [set(one) for one in bad] == [{"error"}] * 3


def test_batch_sizes_give_the_micro_batches(tmp_path, capsys):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(ARGS | {"global_batch_size": 64}), encoding="utf-8")
    assert main(["expected", "--args", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(asked(tmp_path, capsys, "--format", "json")[1])


def batch(tmp_path, capsys, *lines):
    path = tmp_path / "batch.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), encoding="utf-8")
    code = main(["expected", "--batch", str(path)])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_batch_sizes_give_the_micro_batches_of_a_batch_too(tmp_path, capsys):
    sizes = ARGS | {"global_batch_size": 64}
    code, (derived, given) = batch(tmp_path, capsys, {"args": sizes}, {"args": ARGS, "num_microbatches": 8})
    assert (code, derived) == (0, given)
    code, (one,) = batch(tmp_path, capsys, {"args": sizes | {"global_batch_size": 63}})
    assert code == 2
    assert one["error"] == ("the number of micro-batches is not known — give num_microbatches, "
                            "or global_batch_size beside micro_batch_size")


def test_a_line_in_is_a_line_out_and_the_exit_code_tells_what_was_answered(tmp_path, capsys):
    good = {"args": ARGS, "num_microbatches": 8}
    code, answers = batch(tmp_path, capsys, good, "", "  ", good | {"resolved_args": [1]}, good)
    assert code == 3
    assert [one.get("error") for one in answers[1:3]] == ["line 2 is empty", "line 3 is empty"]
    assert "no JSON object" in answers[3]["error"]
    assert answers[0] == answers[4]
    assert batch(tmp_path, capsys, good)[0] == 0
    assert batch(tmp_path, capsys, "", "{")[0] == 2
    assert batch(tmp_path, capsys) == (0, [])


def written(tmp_path, capsys, **more):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(ARGS | more), encoding="utf-8")
    code = main(["expected", "--args", str(path), "--microbatches", "8", "--by", "stage", "--format", "json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else said.err


@pytest.mark.parametrize(("more", "said"), [
    ({"recompute_granularity": "foo"}, "argument recompute_granularity is 'foo'; full or selective would fit"),
    ({"recompute_modules": ["core_attn", "foo"]}, "argument recompute_modules is 'foo'; core_attn or"),
    ({"data_parallel_sharding_strategy": "foo"}, "argument data_parallel_sharding_strategy is 'foo'; no_shard or optim or"),
    ({"optimizer": "foo"}, "argument optimizer is 'foo'; adam or sgd"), ({"fp8": "zzz"}, "argument fp8 is 'zzz'; e4m3 or hybrid would fit"),
    ({"fp16": True}, "argument fp16 is True beside bf16 True; one of them alone would fit"),
])
def test_what_a_person_writes_is_checked(tmp_path, capsys, more, said):
    code, text = written(tmp_path, capsys, **more)
    assert code == 2
    assert said in text
    assert text.count("\n") == 1


def test_a_name_that_nobody_knows_is_told(tmp_path, capsys):
    _, (plain, *_) = written(tmp_path, capsys)
    code, (one, *_) = written(tmp_path, capsys, foo_bar=1, recompute_granularty="full", lr=0.1)
    assert code == 0
    told = [f"{name} is no argument of Megatron's and moves nothing in the ledger; check its name" for name in ("foo_bar", "recompute_granularty")]
    assert one["assumptions"] == told + plain["assumptions"]
    assert one | {"assumptions": []} == plain | {"assumptions": []}


def test_micro_batches_must_be_known(tmp_path, capsys):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(ARGS), encoding="utf-8")
    assert main(["expected", "--args", str(path)]) == 2
    assert "--microbatches" in capsys.readouterr().err
