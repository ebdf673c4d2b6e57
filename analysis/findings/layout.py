"""Rules on where bytes and time could go instead: transient buffers, a bubble that more micro-batches shorten, recompute that frees little, memory to
spare, tensor parallelism beyond its links, settings that multiply communication buffers, and what a larger device would leave.

Sources: the expected ledger's classes at the peak (methods/expected.md); the bubble (p - 1) / (m v + p - 1) and 1F1B's memory (Narayanan et al. 2021,
arXiv 2104.04473); NCCL's parameters (methods/communication.md); usable sizes of devices (`analysis.capacity`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from analysis.capacity import USABLE_GIB
from analysis.coverage import shown_ranks
from analysis.findings.catalogue import advise
from analysis.findings.model import Finding, Rule, Seen
from analysis.rows import Rank
from analysis.verdict import size_text

GIB = 2**30
_TRANSIENT = ("running_layer", "loss", "step", "deferred_gradients")
"""Classes of the peak that live inside one operator or one step of the optimizer."""
_LARGE_BYTES, _LARGE_SHARE = 4 * GIB, 0.1
_BUBBLE, _SPARE = 0.1, 0.3
_LITTLE_BYTES = 2 * GIB
_DOMAINS = ((re.compile(r"\bGB[23]00\b", re.IGNORECASE), 72), (re.compile(r"\b(?:A100|A800|H100|H800|H200|H20|B200|B100|B300)\b", re.IGNORECASE), 8))
_DEFAULT_BUFFER_BYTES = 4 * 2**20


def _fullest(seen: Seen) -> Rank | None:
    return max((rank for rank in seen.overview.ranks if rank.peak_bytes), key=lambda rank: rank.peak_bytes or 0, default=None)


def _transient(seen: Seen) -> Iterator[Finding]:
    rank = _fullest(seen)
    stages = seen.overview.ledger.expected.stages if seen.overview.ledger else {}
    row = stages.get(rank.stage) if rank and rank.stage is not None else None
    if rank is None or row is None:
        return
    parts = {name: size for name, size in row.peak_classes.items() if name in _TRANSIENT and size}
    whole = sum(parts.values())
    if whole < _LARGE_BYTES or whole < _LARGE_SHARE * row.peak_allocated_bytes:
        return
    told = ", ".join(f"{name.replace('_', ' ')} {size_text(size)}" for name, size in parts.items())
    advice, useless = advise(seen, "transient")
    yield Finding("transient_peak", "note", "likely", f"About {size_text(whole)} of the peak on {rank.name} live inside one operator or step "
                  f"({told}): recompute and offload cannot reach them.", (rank.peak_source,), advice, useless)


def _bubble(seen: Seen) -> Iterator[Finding]:
    facts = seen.overview.configuration
    stages, microbatches, chunks = facts.pp or 1, facts.num_microbatches or 0, facts.vpp or 1
    if stages < 2 or microbatches < stages:
        return
    bubble = (stages - 1) / (microbatches * chunks + stages - 1)
    if bubble >= _BUBBLE:
        advice, useless = advise(seen, "bubble")
        yield Finding("pipeline_bubble", "note", "proven", f"{microbatches} micro-batches on {stages} stages leave about {bubble:.0%} of each step "
                      "to the pipeline's bubble. More micro-batches cost no memory here: as many as stages are in flight already.",
                      seen.said("global_batch_size", "pipeline_model_parallel_size"), advice, useless)


def _little_recompute(seen: Seen) -> Iterator[Finding]:
    if seen.args.get("recompute_granularity") != "full":
        return
    freed = seen.saved({"recompute_granularity": None, "recompute_method": None, "recompute_num_layers": None})
    if isinstance(freed, int) and -freed < _LITTLE_BYTES:
        yield Finding("full_recompute_frees_little", "note", "likely", f"Full recompute frees {size_text(max(0, -freed))} on the fullest rank and "
                      "costs about a third more computation: one step down (selective) may do.", seen.said("recompute_granularity"))


def _spare(seen: Seen) -> Iterator[Finding]:
    near, ranks = seen.overview.near_limit, [rank for rank in seen.overview.ranks if rank.rank is not None]
    left = [rank.soft_headroom_bytes / rank.capacity_bytes for rank in ranks if rank.soft_headroom_bytes is not None and rank.capacity_bytes]
    if not near or seen.overview.ooms or any(one.near != "clear" for one in near) or len(left) < len(ranks) or min(left) < _SPARE:
        return
    tightest = min(ranks, key=lambda rank: (rank.soft_headroom_bytes or 0) / (rank.capacity_bytes or 1))
    advice, useless = advise(seen, "spare")
    sentence = (f"Every measured rank has {min(left):.0%} or more of its device to spare (the least, {size_text(tightest.soft_headroom_bytes)}, on "
                f"{tightest.name}): it can be spent on speed.")
    yield Finding("memory_to_spare", "note", "likely", sentence, (tightest.peak_source,), advice, useless)


def _beyond_links(seen: Seen) -> Iterator[Finding]:
    name, size = seen.overview.configuration.gpu_name or "", seen.number("tensor_model_parallel_size")
    domain = next((most for device, most in _DOMAINS if device.search(name)), None)
    if domain and size > domain:
        yield Finding("tensor_parallel_beyond_nvlink", "warning", "likely", f"Tensor parallelism over {size} ranks leaves the NVLink domain of "
                      f"{domain} devices of {name}: four all-reduces a layer go over the network.", seen.said("tensor_model_parallel_size"))


def _buffers(seen: Seen) -> Iterator[Finding]:
    env = seen.environment
    said = []
    if env.get("NCCL_NET_SHARED_BUFFERS") == "0":
        said.append("NCCL_NET_SHARED_BUFFERS=0 (10 MiB a connection over the network instead of one pool)")
    if env.get("NCCL_COMM_SPLIT_SHARE_RESOURCES") == "0":
        said.append("NCCL_COMM_SPLIT_SHARE_RESOURCES=0 (a communicator that is split off has buffers of its own)")
    size = env.get("NCCL_BUFFSIZE", "")
    if size.isdigit() and int(size) > _DEFAULT_BUFFER_BYTES:
        said.append(f"NCCL_BUFFSIZE={size} ({int(size) / _DEFAULT_BUFFER_BYTES:.3g} times the default of every Simple buffer)")
    if said:
        advice, useless = advise(seen, "communication")
        sentence = f"Communication takes more memory than by default: {'; '.join(said)}."
        yield Finding("nccl_larger_buffers", "note", "proven", sentence, (), advice, useless)


def _next_device(seen: Seen) -> Iterator[Finding]:
    near = {one.rank for one in seen.overview.near_limit if one.kind == "hard" and one.near in ("stable", "occasional")}
    ranks = [rank for rank in seen.overview.ranks if rank.rank in near and rank.capacity_bytes and rank.hard_headroom_bytes is not None]
    if not ranks or not re.search(r"A100|A800|H100|H800", seen.overview.configuration.gpu_name or "", re.IGNORECASE):
        return
    worst = min(ranks, key=lambda rank: rank.hard_headroom_bytes or 0)
    held = (worst.capacity_bytes or 0) - (worst.hard_headroom_bytes or 0)
    told = " and ".join(f"{size_text(int(USABLE_GIB[name] * GIB) - held)} on {name}" for name in ("H200", "B200"))
    fewer = " Fewer pipeline stages would fit there: plan the layout with that capacity." if seen.number("pipeline_model_parallel_size") > 1 else ""
    yield Finding("larger_device", "note", "likely", f"The same layout would leave rank{'s' * (len(ranks) > 1)} "
                  f"{shown_ranks(tuple(sorted(rank.rank for rank in ranks if rank.rank is not None)))} at least {told}.{fewer}", (worst.peak_source,))


RULES = (
    Rule("transient_peak", "Much of the peak lives inside one operator", "methods/expected.md", _transient),
    Rule("pipeline_bubble", "A pipeline bubble that more micro-batches shorten", "methods/theory.md", _bubble),
    Rule("full_recompute_frees_little", "Full recompute where little is saved", "methods/theory.md", _little_recompute),
    Rule("memory_to_spare", "Memory to spare on every measured rank", "methods/headroom.md", _spare),
    Rule("tensor_parallel_beyond_nvlink", "Tensor parallelism beyond the NVLink domain", "methods/communication.md", _beyond_links),
    Rule("nccl_larger_buffers", "Settings that multiply communication buffers", "methods/communication.md", _buffers),
    Rule("larger_device", "What a larger device would leave", "methods/headroom.md", _next_device),
)
