"""Rows of the compiled scanner as Arrow tables of `rank_memory` and `iterations`.

They come as 64-bit words, one record after the other, and become columns without a Python object a value: that, not the scan, is where
the time of a dense log goes. Floats are the same words read as doubles; losses and other fields are lists beside the rows, text one run of bytes.
Arrays are made of the words' own buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
INTEGERS = ("consumed_samples", "global_batch_size", "skipped", "nan")
FLOATS = ("elapsed_ms", "learning_rate", "grad_norm", "loss_scale", "tflops_per_gpu")
_MEMORY = ("line", "iteration", "rank", "run_index", "allocated_bytes", "max_allocated_bytes", "reserved_bytes", "max_reserved_bytes",
           "device_used_bytes", "rounding_bytes", "valid")
MEMORY_FIELDS = len(_MEMORY)
_HEAD = ("line", "iteration", "train_iterations", "run_index", "prefix", "timestamp", "has")
ITERATION_FIELDS = len(_HEAD) + len(INTEGERS) + len(FLOATS) + 2


@dataclass(frozen=True, slots=True)
class Entries:
    """Losses (value as bits of a double, name) and other fields (name, begin, length of its text) of all rows, in their order."""

    losses: Int64s
    others: Int64s
    text: bytes
    names: list[str]


def memory(words: Int64s) -> pa.Table:
    """`rank_memory`: Megatron's own record, one row a line."""
    given = {name: _integers(words[:, at], name) for at, name in enumerate(_MEMORY)}
    given["device_used_bytes"] = _array(words[:, 8], pa.int64(), words[:, 8] >= 0)
    same = {"phase": "train", "source": "megatron_log", "scope": "cumulative"}
    return pa.table(given | {name: _same(value, len(words)) for name, value in same.items()})


def iterations(words: Int64s, entries: Entries, ranks: list[tuple[int | None, str | None]]) -> pa.Table:
    """`iterations`; `ranks` has rank and label of each prefix, by its number."""
    given = {name: _integers(words[:, at], name) for at, name in enumerate(_HEAD) if name not in ("prefix", "timestamp", "has")}
    has, at = words[:, _HEAD.index("has")], len(_HEAD)
    given["timestamp"] = _array(words[:, _HEAD.index("timestamp")], pa.timestamp("us"), has < 0)
    for bit, name in enumerate((*INTEGERS, *FLOATS)):
        given[name] = _array(words[:, at + bit], pa.int64() if name in INTEGERS else pa.float64(), (has >> bit & 1) == 1)
    given["losses"] = _maps(words[:, -2], _names(entries, entries.losses[:, 1]), _array(entries.losses[:, 0], pa.float64()))
    given["other"] = _maps(words[:, -1], _names(entries, entries.others[:, 0]), _texts(entries))
    prefix = _array(words[:, _HEAD.index("prefix")], pa.int64())
    given["rank"] = pa.array([rank for rank, _ in ranks], pa.int32()).take(prefix)
    given["rank_label"] = pa.array([label if rank is None else None for rank, label in ranks], pa.string()).take(prefix)
    return pa.table(given | {"phase": _same("train", len(words))})


def _integers(values: Int64s, name: str) -> pa.Array:
    if name == "valid":
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values != 0)])
    return _array(values.astype(np.int32), pa.int32()) if name in ("rank", "run_index") else _array(values, pa.int64())


def _array(values: npt.NDArray[np.signedinteger[Any]], kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The bits of `values` as an array of a type of the same width; null where not `valid`."""
    held = None if valid is None or valid.all() else _bits(valid)
    return pa.Array.from_buffers(kind, len(values), [held, pa.py_buffer(np.ascontiguousarray(values))])


def _bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _same(value: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), count), pa.array([value], pa.string()))


def _names(entries: Entries, ids: Int64s) -> pa.Array:
    return pa.array(entries.names, pa.string()).take(_array(ids, pa.int64()))


def _texts(entries: Entries) -> pa.Array:
    """Texts that stand one after the other, so that their begins are the offsets."""
    begins, count = entries.others[:, 1], len(entries.others)
    offsets = np.append(begins, begins[-1] + entries.others[-1, 2] if count else 0).astype(np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(entries.text))


def _maps(counts: Int64s, keys: pa.Array, values: pa.Array) -> pa.Array:
    """A map a row; null where it has no entry."""
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.MapArray.from_arrays(_array(offsets, pa.int32(), np.append(counts != 0, True)), keys, values)
