"""Sizes of the job outside the argument dump: world-size lines of seven layouts, vocabulary, micro-batches, versions.

Each line is a row of `runs` with what it proves; a view merges them. World-size lines are read name by name, not by layout, because
releases reordered them and twice forgot a separator. One of them is the mark of a new attempt.
"""

from __future__ import annotations

import re

from ingest.parsers.base import Row
from ingest.parsers.log.records import Context, LogLine

_WORLD = re.compile(r"using world size: (?P<world>\d+)\b(?P<rest>.*)")
_SIZE = re.compile(
    r"(?P<name>(?:encoder-)?(?:data|tensor|pipeline|context|expert)[\w-]*?-parallel|"
    r"(?<!tensor-)(?<!pipeline-)model-parallel)[ -]size: (?P<value>\d+)")
_NAMES = {"data-parallel": "data_parallel_size", "tensor-model-parallel": "tensor_model_parallel_size",
          "model-parallel": "tensor_model_parallel_size",
          "pipeline-model-parallel": "pipeline_model_parallel_size", "context-parallel": "context_parallel_size",
          "expert-model-parallel": "expert_model_parallel_size", "expert-tensor-parallel": "expert_tensor_parallel_size"}
_VOCABULARY = re.compile(r"> padded vocab \(size: (?P<vocab>\d+)\) with (?P<dummy>\d+) dummy tokens \(new size: (?P<padded>\d+)\)")
_MICROBATCHES = re.compile(r"setting number of micro-?batches to constant (\d+)(?!\d)")
_BATCH = re.compile(r"setting global batch size to (\d+)(?!\d)")
_DTYPE = re.compile(r"using (torch\.\w+) for parameters")
_INIT = re.compile(r"> initialized (?P<axis>tensor|pipeline|gtp weight remat|expert|context)[\w -]*? with size (?P<value>\d+)")
_BANNERS = re.compile(
    r"\b(?P<name>Megatron[- ]Core|megatron[-_]core|Transformer Engine|PyTorch|torch)[ _]?[Vv]ersion:? ?v?(?P<value>\d[\w.+-]*)")
_INIT_NAMES = {"tensor": "tensor_model_parallel_size", "pipeline": "pipeline_model_parallel_size", "expert": "expert_model_parallel_size",
               "context": "context_parallel_size"}


class WorldLines:
    """Rows of `runs`, `run_args` and `environment` from single lines."""

    literals = ("using world size:", "padded vocab", "setting number of micro", "setting global batch size", "for parameters ...", "> initialized ",
                *(f"{name}{gap}{v}ersion" for name in ("ore", "ine", "rch") for gap in (" ", "_", "") for v in "vV"))

    def take(self, line: LogLine, context: Context) -> bool:
        """Emit what the line proves."""
        found = False
        for one in (_world, _vocabulary, _single):
            found = one(line, context) or found
        return found


def _world(line: LogLine, context: Context) -> bool:
    match = _WORLD.search(line.text)
    if not match:
        return False
    row: Row = {"world_size": int(match["world"])}
    other: dict[str, str] = {}
    for one in _SIZE.finditer(match["rest"]):
        if one["name"] in _NAMES:
            row[_NAMES[one["name"]]] = int(one["value"])
        else:
            other[one["name"]] = one["value"]
    context.facts["world_seen"] = True
    context.emit("runs", line, rank=None, **row, other=other or None)
    return True


def _vocabulary(line: LogLine, context: Context) -> bool:
    match = _VOCABULARY.search(line.text)
    if match:
        context.emit("runs", line, rank=None, vocab_size=int(match["vocab"]),
                     padded_vocab_size=int(match["padded"]), other={"dummy_tokens": match["dummy"]})
    return bool(match)


def _single(line: LogLine, context: Context) -> bool:
    if match := _MICROBATCHES.search(line.text):
        context.emit("runs", line, rank=None, num_microbatches=int(match[1]))
    elif match := _DTYPE.search(line.text):
        context.emit("runs", line, rank=None, params_dtype=match[1])
    elif match := _BATCH.search(line.text):
        context.emit("run_args", line, name="global_batch_size", value=match[1], origin="log_line")
    elif match := _INIT.search(line.text):
        columns = {_INIT_NAMES[match["axis"]]: int(match["value"])} if match["axis"] in _INIT_NAMES else {}
        context.emit("runs", line, rank=None, **columns, other=None if columns else {match["axis"]: match["value"]})
    elif match := _BANNERS.search(line.text):
        context.emit("environment", line, host=line.host, name=f"{match['name']} version", value=match["value"], origin="banner")
    return bool(match)
