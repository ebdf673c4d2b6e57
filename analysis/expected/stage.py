"""One stage's expectation: every class of `analysis/expected` put together once for all ranks of a stage.

Ranks of a stage differ in nothing this ledger counts (TP, CP, EP and DP divide evenly), so 16,384 ranks cost as much as their stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.expected.boundary import boundary_bytes, peak_boundary_bytes
from analysis.expected.caches import rotary_bytes, stand_in_bytes
from analysis.expected.chunk import chunk_bytes
from analysis.expected.fsdp import gathered
from analysis.expected.gradients import gradient_bytes
from analysis.expected.head import batch_bytes, deferred_bytes, evaluation_loss_bytes, kept_loss_bytes
from analysis.expected.instants import Instant, Moments, fullest
from analysis.expected.low_precision import quantised_weight_bytes, replaced_bytes
from analysis.expected.moe import routed_tokens
from analysis.expected.optimizer import Widths, copy_widths, optimizer_bytes, state_widths
from analysis.expected.parameters import cell_tensors, elements
from analysis.expected.run import Run
from analysis.expected.transients import step_bytes
from analysis.expected.weights import Buffer, buffers, weight_bytes
from analysis.expected.workspaces import global_buffer_bytes, workspace_bytes
from analysis.theory.stages import Cell


@dataclass(frozen=True, slots=True)
class StageBytes:
    """One stage: parameters, what is resident after the optimizer step by class, and its instants."""

    parameters: int
    classes: dict[str, int]
    instants: tuple[Instant, ...]


def stage_bytes(run: Run, stage: int) -> StageBytes:
    """Every class of one stage."""
    cells = run.layout.of_stage(stage)
    tensors = [cell_tensors(run.model, run.sizes, cell) for cell in cells]
    chunks = [buffers(each, run.sizes, run.options) for each in tensors]
    classes = _resident(run, cells, chunks) | _extras(run, cells, [buffer for each in chunks for buffer in each])
    units = gathered(run.model, run.options, run.sizes, cells)
    classes["gathered"] = units.at("after_step")
    if run.communication:
        classes["communication"] = run.communication(run, stage)
    alive = [chunk_bytes(run, cell, each) for cell, each in zip(cells, tensors, strict=True)]
    moments = fullest(run.plan, stage, alive, later_backwards=run.options.legacy_gradients)
    instants = _instants(run, cells, chunks, classes, moments, max(chunk.layer for chunk in alive))
    return StageBytes(sum(elements(each) for each in tensors), classes,
                      tuple(Instant(one.name, {**one.classes, "gathered": units.at(one.name)}) for one in instants))


def _instants(run: Run, cells: tuple[Cell, ...], chunks: list[list[Buffer]], classes: dict[str, int], moments: Moments,
              layer: int) -> Iterator[Instant]:
    """Every candidate of the peak, with its classes; an evaluation works on one `layer` at a time and keeps nothing."""
    model, options = run.model, run.options
    held = _computing(run, chunks, classes)
    ends = any(cell.embedding or cell.loss for cell in cells)
    held |= {"boundary": peak_boundary_bytes(model, options, run.sizes.pp), "batch": batch_bytes(options) if ends else 0}
    yield Instant("forward", held | {"activations": moments.forward[0]})
    extra = {"legacy_gradients": _weights(chunks) * options.weight_bytes} if options.legacy_gradients else {}
    yield Instant("backward", held | extra | {"activations": moments.backward[0], "running_layer": moments.backward[1]})
    if any(cell.loss for cell in cells):
        deferred = deferred_bytes(model, options, run.plan.microbatches)
        yield Instant("loss", held | {"activations": moments.loss[0], "loss": moments.loss[1], "deferred_gradients": deferred})
    loss = evaluation_loss_bytes(model, options) if any(cell.loss for cell in cells) else 0
    yield Instant("evaluation", held | {"running_layer": max(layer, loss)})
    step = {"step": sum(step_bytes(chunk, options) for chunk in chunks)}
    yield Instant("optimizer_step", classes | _gradients(run, chunks) | step)
    yield Instant("after_step", classes)


def _computing(run: Run, chunks: list[list[Buffer]], classes: dict[str, int]) -> dict[str, int]:
    """What is resident while a step computes: no fp32 gradient copy, which `zero_grad` frees (old wrappers keep it), and in a run's
    first step no moments, which the optimizer makes at its end."""
    options = run.options
    held = classes | {"gradients": _gradients(run, chunks)["gradients"]}
    if not options.legacy_gradients or run.first_step:
        held["gradient_copy"] = 0
    if run.first_step and not options.deepspeed:
        held["optimizer"] -= _states(run, chunks, state_widths(options, moments_only=True))
    return held


def _gradients(run: Run, chunks: list[list[Buffer]]) -> dict[str, int]:
    """Gradients and their fp32 copy where both live."""
    buffered = sum(gradient_bytes(chunk, run.options, expandable=run.env.expandable) for chunk in chunks)
    return {"gradients": buffered, "gradient_copy": _states(run, chunks, copy_widths(run.options))}


def _states(run: Run, chunks: list[list[Buffer]], widths: Widths) -> int:
    return sum(optimizer_bytes(chunk, run.options, widths, expandable=run.env.expandable) for chunk in chunks)


def _weights(chunks: list[list[Buffer]]) -> int:
    return sum(elements(buffer.tensors) for chunk in chunks for buffer in chunk)


def _resident(run: Run, cells: tuple[Cell, ...], chunks: list[list[Buffer]]) -> dict[str, int]:
    """What stands after a step. DeepSpeed frees gradients and their copy then, Megatron at the start of the next step."""
    options, expandable = run.options, run.env.expandable
    gradients = {"gradients": 0, "gradient_copy": 0} if options.deepspeed else _gradients(run, chunks)
    return {
        "weights": sum(weight_bytes(chunk, options, expandable=expandable) - replaced_bytes(chunk, options) for chunk in chunks), **gradients,
        "optimizer": _states(run, chunks, state_widths(options)),
        "boundary": boundary_bytes(run.model, options, cells, expandable=expandable),
        "workspaces": workspace_bytes(run.model, options, run.env),
        "global_buffer": global_buffer_bytes(run.model, options, run.sizes),
        "moe_leftovers": leftover_bytes(run, chunks),
    }


def _extras(run: Run, cells: tuple[Cell, ...], chunk: list[Buffer]) -> dict[str, int]:
    """Classes that few runs have."""
    tensors = [tensor for buffer in chunk for tensor in buffer.tensors]
    latent = sum(1 for tensor in tensors if tensor.name == "kv_down")
    return {
        "quantised_weights": quantised_weight_bytes(chunk, run.options, run.env),
        "rotary_caches": rotary_bytes(run.model, latent),
        "stand_in_gradients": stand_in_bytes(tensors, run.options),
        "loss_leftovers": kept_loss_bytes(run.model, run.options) if any(cell.loss for cell in cells) else 0,
    }


def leftover_bytes(run: Run, chunks: list[list[Buffer]]) -> int:
    """Maps and probabilities that each MoE layer's dispatcher still refers to after the step."""
    layers = sum(1 for chunk in chunks for buffer in chunk for tensor in buffer.tensors if tensor.name == "router")
    gathered = run.options.local_tokens * run.sizes.ep * run.sizes.etp
    local = run.model.experts // run.sizes.ep if run.model.experts else 0
    return layers * (gathered * local + 12 * routed_tokens(run.model, run.options, run.sizes))
