"""The face of `hbmledger expected`: one answer a rank, a stage or a line."""

from __future__ import annotations

import json

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
    assert main(["expected", "--batch", str(path), "--format", "json"]) == 0
    good, *bad = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert good["rank"] == 3
    assert good["classes_bytes"]["workspaces"] == 96 * 2**20
    assert [set(one) for one in bad] == [{"error"}] * 3


def test_batch_sizes_give_the_micro_batches(tmp_path, capsys):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(ARGS | {"global_batch_size": 64}), encoding="utf-8")
    assert main(["expected", "--args", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(asked(tmp_path, capsys, "--format", "json")[1])


def test_micro_batches_must_be_known(tmp_path, capsys):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(ARGS), encoding="utf-8")
    assert main(["expected", "--args", str(path)]) == 2
    assert "--microbatches" in capsys.readouterr().err
