"""Classes: the rules on single stacks, blocks without a stack, and Megatron-shaped files whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.snapshot.classes import ALL_RULES
from analysis.snapshot.rules import CATEGORIES, RULES
from analysis.snapshot.stacks import NONE, Stacks
from analysis.snapshot.trace import from_columns
from analysis.snapshot.view import Device, devices
from ingest.parsers.snapshot.reading import read_snapshot
from sample_data.snapshots import write
from tests.analysis.snapshot.made import MIB, Maker

SITE = "/usr/lib/python3/dist-packages/"
CALL = (SITE + "torch/nn/modules/module.py:1553 _wrapped_call_impl",)
FORWARD = ("/w/model.py:7 forward",)


def ruled(*frames: str) -> str:
    """The class of a stack, innermost frame first."""
    stacks = Stacks([frames])
    row = int(stacks.rule[0])
    return "unknown" if row < 0 else RULES[row].category


@pytest.mark.parametrize(("category", "frames"), [
    ("weights", ("/x/megatron/core/tensor_parallel/layers.py:251 __init__", "/x/megatron/core/models/gpt/gpt_model.py:99 __init__")),
    ("weights", (SITE + "torch/nn/modules/module.py:1160 convert", SITE + "torch/nn/modules/module.py:805 _apply")),
    ("weights", (SITE + "transformer_engine/pytorch/module/linear.py:900 __init__",)),
    ("weights", ("C:\\me\\llm\\loader.py:5 load_model_weights", "C:\\me\\main.py:3 <module>")),
    ("gradient_buffer", ("??:0 at::empty_cuda", "/x/megatron/core/distributed/param_and_grad_buffer.py:670 __init__")),
    ("gradient_buffer", ("AccumulateGrad.cpp:0 torch::autograd::AccumulateGrad::apply(std::vector)",
                         "??:0 torch::autograd::Engine::evaluate_function(...)")),
    ("optimizer", ("/x/megatron/core/optimizer/__init__.py:373 init_state_fn", "/x/megatron/training/checkpointing.py:1 load_checkpoint")),
    ("optimizer", (SITE + "torch/optim/adamw.py:200 _init_group", SITE + "torch/optim/optimizer.py:400 wrapper")),
    ("optimizer", ("/me/opt.py:12 step", SITE + "torch/optim/optimizer.py:400 wrapper")),
    ("checkpoint", ("/x/megatron/core/transformer/mlp.py:314 sh_ten_merge_fn",
                    "/x/megatron/core/dist_checkpointing/mapping.py:4 apply_factory_merges")),
    ("input", ("/x/megatron/training/utils.py:300 get_batch_on_this_tp_rank", "/x/pretrain_gpt.py:120 get_batch")),
    ("logits_and_loss", ("/x/megatron/core/tensor_parallel/cross_entropy.py:60 calculate_predicted_logits",)),
    ("logits_and_loss", ("/x/megatron/core/tensor_parallel/layers.py:500 forward", *CALL,
                         "/x/megatron/core/models/gpt/gpt_model.py:807 _postprocess")),
    ("logits_and_loss", (SITE + "torch/nn/functional.py:3000 cross_entropy", "/me/train.py:9 <module>")),
    ("activations", ("/x/megatron/core/tensor_parallel/layers.py:500 forward", *CALL, "/x/megatron/core/transformer/transformer_layer.py:400 forward",
                     *CALL, "/x/megatron/core/models/gpt/gpt_model.py:640 forward")),
    ("activations", (SITE + "torch/nn/functional.py:1 gelu", "/me/net.py:3 forward")),
    ("activations", ("??:0 torch::autograd::generated::MmBackward0::apply(...)", "??:0 torch::autograd::Engine::thread_main(...)")),
    ("recomputed", ("/x/megatron/core/transformer/mlp.py:5 forward", "/x/megatron/core/transformer/transformer_block.py:7 custom_forward",
                    "/x/megatron/core/tensor_parallel/random.py:650 backward", SITE + "torch/autograd/function.py:581 apply")),
    ("recomputed", ("/me/net.py:3 forward", SITE + "torch/utils/checkpoint.py:1100 unpack_hook")),
    ("activations", (SITE + "torch/autograd/graph.py:800 _engine_run_backward", SITE + "torch/autograd/__init__.py:300 backward",
                     "/x/megatron/core/tensor_parallel/random.py:668 backward")),
    ("workspace", ("??:0 at::cuda::getCUDABlasLtWorkspace()", "/me/net.py:3 forward")),
    ("workspace", (SITE + "transformer_engine/pytorch/module/base.py:80 get_workspace", "/x/megatron/core/transformer/mlp.py:5 forward")),
    ("communication", ("/x/megatron/core/pipeline_parallel/p2p_communication.py:336 create_tensor_recv_prev",
                       "/x/megatron/core/pipeline_parallel/schedules.py:2390 forward_backward_pipelining_without_interleaving")),
    ("communication", ("/x/megatron/core/tensor_parallel/mappings.py:60 _gather_along_first_dim", "/x/megatron/core/transformer/mlp.py:5 forward")),
    ("communication", (SITE + "torch/distributed/distributed_c10d.py:3000 all_gather_object", "/me/run.py:1 main")),
    ("unknown", ("/me/script.py:3 <module>",)),
    ("unknown", ("/me/pool.py:3 __init__", "/me/script.py:3 <module>")),
    ("unknown", ("/x/megatron/core/pipeline_parallel/schedules.py:2390 forward_backward_no_pipelining", "/x/megatron/training/training.py:1 train")),
])
def test_a_stack_names_its_class(category: str, frames: tuple[str, ...]) -> None:
    assert ruled(*frames) == category


def test_the_first_line_of_megatrons_buffer_is_the_parameters() -> None:
    file = "/x/megatron/core/distributed/param_and_grad_buffer.py"
    frames = [(f"{file}:{line} __init__",) for line in (640, 664, 670)]
    alone = Stacks(frames[2:])
    together = Stacks(frames, [512, 2**30, 2**31])
    assert [RULES[row].category for row in alone.rule] == ["gradient_buffer"]
    assert [RULES[row].category for row in together.rule] == ["gradient_buffer", "weights", "gradient_buffer"]


def test_every_rule_is_whole() -> None:
    assert len({rule.name for rule in ALL_RULES}) == len(ALL_RULES)
    assert all(rule.category in CATEGORIES and rule.evidence and rule.source for rule in ALL_RULES)


def device_of(maker: Maker) -> Device:
    return devices(from_columns(maker.columns()))[0]


def names(device: Device) -> dict[str, int]:
    return {share.name: share.bytes for share in device.by_rule(device.peak.event)}


def test_backward_without_stacks_is_named_by_size_stream_and_long_life() -> None:
    maker = Maker()
    maker.segment(2**32)
    side = maker.segment(2**32, stream=9)
    saved = maker.alloc(8 * MIB, FORWARD)
    gone = [maker.alloc(8 * MIB, ()), maker.alloc(5 * MIB, ()), maker.alloc(3 * MIB, (), segment=side)]
    gradient = maker.alloc(6 * MIB, ())
    for block in (*gone, saved):
        maker.free(block)
    maker.alloc(MIB, ("/me/opt.py:12 step", SITE + "torch/optim/optimizer.py:400 wrapper"))
    maker.free(gradient)
    assert names(device_of(maker)) == {
        "forward": 8 * MIB, "backward (no stack), size of an activation": 8 * MIB, "backward (no stack)": 5 * MIB,
        "backward (no stack), on another stream": 3 * MIB, "kept for the optimizer": 6 * MIB}


def test_inside_an_optimizer_step_an_empty_stack_is_the_optimizers() -> None:
    maker = Maker()
    maker.segment(2**32)
    maker.annotate("Optimizer.step#AdamW.step", "START")
    block = maker.alloc(MIB, ())
    maker.free(block)
    maker.clock += 10
    maker.annotate("Optimizer.step#AdamW.step", "END")
    maker.alloc(MIB // 2, ())
    found = device_of(maker)
    assert names(found) == {"backward (no stack), inside an optimizer step": MIB}
    assert found.moment(found.peak.event).annotations == ("Optimizer.step#AdamW.step",)


def test_what_cannot_be_known_is_unknown() -> None:
    maker = Maker()
    maker.segment(2**32)
    maker.alloc(MIB, None)
    maker.alloc(2 * MIB, ("/me/script.py:3 <module>",))
    late = devices(from_columns(maker.columns(dropped=2)))[0]
    assert names(late) == {"no rule fits": 2 * MIB, "predates the trace": MIB}
    assert names(device_of(maker)) == {"no rule fits": 2 * MIB, "no stack recorded": MIB}


def test_owners_are_the_askers_code() -> None:
    stacks = Stacks([(SITE + "torch/functional.py:373 einsum", "/a/b/c/d/model.py:39 forward"), (), ("??:0 torch::unwind::unwind()",),
                     ("x.cpp:0 at::native::empty_cuda(c10::ArrayRef<long>, bool)",)])
    assert [stacks.owner(row) for row in (0, 1, 2, 3, -1)] == ["c/d/model.py:39 forward", NONE, NONE, "at::native::empty_cuda", NONE]
    assert stacks.text(0) == ("torch/functional.py:373 einsum", "c/d/model.py:39 forward")


@pytest.mark.parametrize("events", [0, 20_000])
@pytest.mark.parametrize("stage", [0, 1])
def test_classes_of_megatron_shaped_files_are_the_true_ones(tmp_path: Path, stage: int, events: int) -> None:
    path = tmp_path / "snapshot_0.pickle"
    truth: dict[str, Any] = write(path, events, stage=stage)
    device = devices(from_columns(read_snapshot(path)))[0]
    assert device.peak.bytes == truth["peaks"]["requested"]["bytes"]
    assert device.peak.event == truth["peaks"]["requested"]["event"]
    assert device.levels.low.max() <= truth["peaks"]["active"]["bytes"] <= device.levels.high.max()
    assert device.levels.reserved.max() == truth["peaks"]["reserved"]["bytes"]
    found = {share.name: share.bytes for share in device.by_class(device.peak.event)}
    right = sum(min(found.get(name, 0), size) for name, size in truth["requested_by_class"].items())
    assert right >= 0.98 * device.peak.bytes
    assert found["unknown"] == truth["requested_by_class"]["unknown"]
    live = device.lives.live_after(device.peak.event) & (device.lives.birth >= 0)
    of_alloc = dict(zip((device.trace.events.action == 0).nonzero()[0].tolist(), truth["class_of_alloc"], strict=True))
    told = [truth["classes"][ord(of_alloc[birth]) - ord("a")] for birth in device.lives.birth[live].tolist()]
    given = [CATEGORIES[code] for code in device.classes.category[live].tolist()]
    sizes = device.lives.size[live].tolist()
    assert sum(size for size, true, got in zip(sizes, told, given, strict=True) if true == got) >= 0.98 * sum(sizes)
