"""Arguments on launch command lines, in dumps of every age, in config reprs; gradient buckets and counts of parameters."""

from __future__ import annotations

import textwrap
import time

import pytest

from tests.ingest.parsers.log.reading import read


def arguments(text: str) -> dict[str, str | None]:
    return {row["name"]: row["value"] for row in read(text + "\n").get("run_args", [])}


def test_a_command_line_with_every_way_to_write_an_option() -> None:
    text = ('torchrun --nproc_per_node 8 --nnodes=2 pretrain_gpt.py --tensor-model-parallel-size 4 --num-layers=80 --bf16 --lr 3e-4 --data-path 0.5 '
            '/data/a 0.5 /data/b --split 949,50,1 --tokenizer-model "/a b/c" --moe-layer-freq ([0]*1+[1]*3) --init-std -0.01 --no-bias \\')
    assert arguments(text) == {
        "nproc_per_node": "8", "nnodes": "2", "tensor_model_parallel_size": "4", "num_layers": "80", "bf16": "True", "lr": "3e-4",
        "data_path": "0.5 /data/a 0.5 /data/b", "split": "949,50,1", "tokenizer_model": "/a b/c", "moe_layer_freq": "([0]*1+[1]*3)",
        "init_std": "-0.01", "no_bias": "True"}


def test_a_command_as_a_list_of_words_and_in_a_shell_variable() -> None:
    spawned = "[INFO] [launch.py:256:main] process 1 spawned with command: ['/usr/bin/python3', '-u', 'pretrain_gpt.py', '--local_rank=0', " \
              "'--num-layers', '24', '--bf16']"
    assert arguments(spawned) == {"local_rank": "0", "num_layers": "24", "bf16": "True"}
    assert arguments('GPT_ARGS="--num-layers 24 --hidden-size 2048"') == {"num_layers": "24", "hidden_size": "2048"}


@pytest.mark.parametrize("prefix", ["", "0: ", "[default0]:", "[rank0]: ", "gx-n01: ", "> "])
def test_a_dump_through_launchers(prefix: str) -> None:
    long = "ddp_param_name_patterns_for_fp32_local_accumulation"
    lines = ["------------------------ arguments ------------------------", f"  {long}  ['a b']",
             "  lr .............................................. 1e-08", "  load ............................................ ",
             "  seed ............................................ None",
             "  data_path ....................................... ['0.5', '/data/a b']",
             "-------------------- end of arguments ---------------------"]
    found = arguments("\n".join(prefix + line for line in lines))
    assert found == {long: "['a b']", "lr": "1e-08", "load": "", "seed": None, "data_path": "['0.5', '/data/a b']"}


DUMP = ["------------------------ arguments ------------------------", "  ddp_param_name_patterns_for_fp32_local_accumulation  ['a b']",
        "  lr .............................................. 1e-08", "  load ............................................ ",
        "  note ............................................ two", "lines", "  world_size ...................................... 16",
        "-------------------- end of arguments ---------------------"]
FOUND = {"ddp_param_name_patterns_for_fp32_local_accumulation": "['a b']", "lr": "1e-08", "load": "", "note": "two\nlines", "world_size": "16"}


@pytest.mark.parametrize("prefix", [
    "trainer-1  | ", "trainer_1_1    | ", "train-worker-0 pytorch ", "[prterun-node1-1234@1,0]<stdout>: ", "Mon Nov 30 07:21:44 2026[1,0]<stdout>:",
    "Mon Nov 30 07:21:44 2026<stdout>: ", "Nov 30 07:21:44 gpu01 python[123]: ", "<14>1 2026-11-30T07:21:44Z gpu01 python 12345 - - ",
    "Nov 30 07:21:44 ", "00:00:12 ", "2026-11-30 07:21:44 ", "train\tRun\t2026-11-30T07:21:44.1234567Z ", "2026-11-30T07:21:44.123456Z 01O ",
    "[0] ", "[0]:", "[0]: ", "[rank=0] ", "[node1:rank0] ", "worker[0]: ", "0| ", "INFO 11-30 07:21:44 [trainer.py:123] ",
    "[INFO|trainer.py:123] 2026-11-30 07:21:44,123 >> ", "10.0.0.1: ", "train.log:", "a launcher nobody knows // 7 >>> ",
])
def test_a_dump_behind_what_stands_before_its_header(prefix: str) -> None:
    rows = read("".join(f"{prefix}{line}\n" for line in ["first", *DUMP, "  next"]))
    assert {row["name"]: row["value"] for row in rows["run_args"]} == FOUND
    assert [row["world_size"] for row in rows["runs"]] == [16]
    assert "rejects" not in rows


def test_digits_of_a_learned_prefix_vary_and_lines_of_others_stay_out() -> None:
    lines = [f"at 7:21:{at:02d} of w[0] > {line}\nat 7:21:{at:02d} of w[1] > loading\nunprefixed\n"
             for at, line in enumerate(DUMP) if line != "lines"]
    assert arguments("".join(lines)) == FOUND | {"note": "two"}


def test_a_record_inside_a_learned_prefix_s_dump_is_read() -> None:
    memory = "[Rank 1] (after 2 iterations) memory (MB) | allocated: 1.00 | max allocated: 2.00 | reserved: 3.00 | max reserved: 4.00"
    rows = read("".join(f"x: {line}\n" for line in [*DUMP[:3], memory, *DUMP[3:]]))
    assert {row["name"]: row["value"] for row in rows["run_args"]} == FOUND
    assert [row["rank"] for row in rows["rank_memory"]] == [1]


def test_an_argument_s_line_behind_anything_without_a_header_is_read_by_its_width_or_counted() -> None:
    line = "lr .............................................. 1e-08"
    assert arguments(f"who knows // {line}") == {"lr": "1e-08"}
    rows = read(f"who_knows_{line}\nwho knows {line.replace(' ....', ' ..')}\n")
    assert [row["line"] for row in rows["rejects"]] == [2]
    assert "rejects" not in read("loading the checkpoint of this model ................. done\n"
                                 "building GPT model ..............................................\n  ninja .................. [OKAY]\n"
                                 "    forward-compute ................................: (0.00, 00.00)\n")


def test_a_progress_bar_before_an_argument_is_no_part_of_the_value_above() -> None:
    bars = ["  3%|#   | 1/30 [00:01<00:30]", "Loading: 10it [00:01,  7.1it/s]"]
    assert arguments("".join(f"{bars[at % 2]}\r{line}\n" for at, line in enumerate(DUMP) if line != "lines")) == FOUND | {"note": "two"}


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_a_config_that_a_wrap_tore_is_whole_again(width: int) -> None:
    fields = {"grad_reduce_in_fp32": "True", "overlap_grad_reduce": "False", "bucket_size": "40000000", "params_dtype": "torch.bfloat16",
              **{f"some_longer_name_of_a_field_{at}": f"Foo(a={at})" for at in range(30)}}
    text = f"x DistributedDataParallelConfig({', '.join(f'{name}={value}' for name, value in fields.items())})"
    for cut in ("\n".join(text[at:at + width] for at in range(0, len(text), width)), "\n".join(textwrap.wrap(text, width))):
        rows = read(f"{cut}\nusing torch.bfloat16 for parameters ...\n")
        assert {row["name"]: row["value"] for row in rows["run_args"]} == fields
        assert {row["origin"] for row in rows["run_args"]} == {"ddp_config"}
        assert "rejects" not in rows


def test_a_config_whose_end_never_comes_keeps_what_is_certain_and_is_counted() -> None:
    rows = read("OptimizerConfig(optimizer='adam', lr=0.0\n[rank0]: something else\nconfig = OptimizerConfig(\n")
    assert [(row["name"], row["value"]) for row in rows["run_args"]] == [("optimizer", "'adam'")]
    assert [row["line"] for row in rows["rejects"]] == [1]
    assert arguments("DistributedDataParallelConfig(a=1)[rank1]: x OptimizerConfig(b=(2, 3))") == {"a": "1", "b": "(2, 3)"}
    assert arguments("OptimizerConfig(f=<function (x) -> y>, a=1 > 0, b=2)") == {"f": "<function (x) -> y>", "a": "1 > 0", "b": "2"}


def test_no_line_takes_long() -> None:
    blanks, many = " " * 500_000, "OptimizerConfig(a=1, " * 20_000
    begun = time.process_time()
    read(f"x ------------ a{blanks}\n{'-' * 500_000} a\n{many}\n" + f"OptimizerConfig(a=1,\n{'b=2, ' * 100_000}\n{'c=3, ' * 100_000}\n" * 2)
    assert time.process_time() - begun < 10


def test_config_reprs_are_split_at_their_own_commas() -> None:
    text = ("Setting up optimizer with config OptimizerConfig(optimizer='adam', lr=0.0003, min_lr=None, params_dtype=torch.bfloat16, "
            "timers=<megatron.Timers object at 0x7f>, nested=Foo(a=1, b=[1, 2]), note='a, b')")
    assert arguments(text) == {"optimizer": "'adam'", "lr": "0.0003", "min_lr": None, "params_dtype": "torch.bfloat16",
                               "timers": "<megatron.Timers object at 0x7f>", "nested": "Foo(a=1, b=[1, 2])", "note": "'a, b'"}
    origins = {row["origin"] for row in read(text + "\nx DistributedDataParallelConfig(grad_reduce_in_fp32=True)\n")["run_args"]}
    assert origins == {"optimizer_config", "ddp_config"}


@pytest.mark.parametrize("prefix", ["", "[default0]:", "0: "])
def test_buckets_with_padding_notes_and_their_names(prefix: str) -> None:
    lines = ["Number of buckets for gradient all-reduce / reduce-scatter: 2", "Params for bucket 1 (1200 elements, 1280 padded size):",
             "\tmodule.decoder.final_layernorm.weight", "\tmodule.decoder.layers.0.mlp.linear_fc1.weight (param.main_grad.dtype=torch.float32)",
             "Params for bucket 2 (800 elements, 832 padded size, 3 param(s) with extra main_grads):", "\tmodule.embedding.word_embeddings.weight",
             "> building train, validation, and test datasets ..."]
    rows = read("".join(f"{prefix}{line}\n" for line in lines))["parameter_counts"]
    assert [(row["bucket"], row["parameters"], row["padded_elements"], row["names"]) for row in rows] == [
        (1, 1200, 1280, ["module.decoder.final_layernorm.weight", "module.decoder.layers.0.mlp.linear_fc1.weight"]),
        (2, 800, 832, ["module.embedding.word_embeddings.weight"])]
    assert rows[1]["other"] == {"note": "3 param(s) with extra main_grads", "extra_main_grads": "3", "buckets": "2"}


def test_counts_of_parameters_in_all_layouts() -> None:
    text = ("0:  > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 2209652736\n"
            " > number of parameters on (tensor, gtp_weight_remat, pipeline) model parallel rank (1, 0, 3): 55\n"
            " > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank (1, 2, 3): 56\n"
            " > number of parameters on model parallel rank 3: 80\n")
    assert [(row.get("tensor_rank"), row.get("pipeline_rank"), row.get("model_parallel_rank"), row["parameters"])
            for row in read(text)["parameter_counts"]] == [(0, 0, None, 2209652736), (1, 3, None, 55), (1, 3, None, 56), (None, None, 3, 80)]


@pytest.mark.parametrize(("text", "sizes"), [
    ("using world size: 16 and model-parallel size: 8 ", (16, None, 8, None, None)),
    ("using world size: 16, data-parallel-size: 1, tensor-model-parallel size: 4, pipeline-model-parallel size: 4 ", (16, 1, 4, 4, None)),
    ("using world size: 16, data-parallel size: 2, context-parallel size: 2 tensor-model-parallel size: 2, pipeline-model-parallel size: 2 ",
     (16, 2, 2, 2, 2)),
    ("using world size: 16, data-parallel size: 2, context-parallel size: 1, hierarchical context-parallel sizes: Nonetensor-model-parallel size: 4, "
     "encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 2, encoder-pipeline-model-parallel size: 0", (16, 2, 4, 2, 1)),
    ("using world size: 64, data-parallel size: 4, context-parallel size: 2, hierarchical context-parallel sizes: [2, 1], "
     "tensor-model-parallel size: 2, pipeline-model-parallel size: 4", (64, 4, 2, 4, 2)),
])
def test_sizes_in_layouts_of_six_years(text: str, sizes: tuple[int | None, ...]) -> None:
    (row,) = read(text + "\n")["runs"]
    names = ("world_size", "data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    assert tuple(row.get(name) for name in names) == sizes
