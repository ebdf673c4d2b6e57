"""Arguments on launch command lines, in dumps of every age, in config reprs; gradient buckets and counts of parameters."""

from __future__ import annotations

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
