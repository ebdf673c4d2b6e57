"""Rows of the compiled scanner as Arrow tables of `rank_memory` and `iterations`.

They come as 64-bit words, one record after the other, and become columns without a Python object a value: that, not the scan, is where
the time of a dense log goes. Floats are the same words read as doubles; losses and other fields are lists beside the rows, text one run of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

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
_TYPES = {"rank": pa.int32(), "run_index": pa.int32(), "valid": pa.bool_()}


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
    given["device_used_bytes"] = pa.array(np.ascontiguousarray(words[:, 8]), mask=words[:, 8] < 0)
    same = {"phase": "train", "source": "megatron_log", "scope": "cumulative"}
    return pa.table(given | {name: _same(value, len(words)) for name, value in same.items()})


def iterations(words: Int64s, entries: Entries, ranks: list[tuple[int | None, str | None]]) -> pa.Table:
    """`iterations`; `ranks` has rank and label of each prefix, by its number."""
    given = {name: _integers(words[:, at], name) for at, name in enumerate(_HEAD) if name not in ("prefix", "timestamp", "has")}
    has, at = words[:, _HEAD.index("has")], len(_HEAD)
    given["timestamp"] = pa.array(np.ascontiguousarray(words[:, 5]), mask=has >= 0).cast(pa.timestamp("us"))
    for bit, name in enumerate((*INTEGERS, *FLOATS)):
        values = np.ascontiguousarray(words[:, at + bit])
        given[name] = pa.array(values if name in INTEGERS else values.view(np.float64), mask=(has >> bit & 1) == 0)
    given["losses"] = _maps(words[:, -2], _names(entries, entries.losses[:, 1]), np.ascontiguousarray(entries.losses[:, 0]).view(np.float64))
    given["other"] = _maps(words[:, -1], _names(entries, entries.others[:, 0]), _texts(entries))
    prefix = pa.array(np.ascontiguousarray(words[:, _HEAD.index("prefix")]))
    given["rank"] = pa.array([rank for rank, _ in ranks], pa.int32()).take(prefix)
    given["rank_label"] = pa.array([label if rank is None else None for rank, label in ranks], pa.string()).take(prefix)
    return pa.table(given | {"phase": _same("train", len(words))})


def _integers(values: Int64s, name: str) -> pa.Array:
    array = pa.array(np.ascontiguousarray(values))
    return array.cast(_TYPES[name]) if name in _TYPES else array


def _same(value: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), count), pa.array([value], pa.string()))


def _names(entries: Entries, ids: Int64s) -> pa.Array:
    return pa.array(entries.names, pa.string()).take(pa.array(np.ascontiguousarray(ids)))


def _texts(entries: Entries) -> pa.Array:
    """Texts that stand one after the other, so that their begins are the offsets."""
    begins, count = entries.others[:, 1], len(entries.others)
    offsets = np.append(begins, begins[-1] + entries.others[-1, 2] if count else 0).astype(np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(entries.text))


def _maps(counts: Int64s, keys: pa.Array, values: pa.Array | npt.NDArray[np.float64]) -> pa.Array:
    """A map a row; null where it has no entry."""
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    empty = np.append(counts == 0, False)
    return pa.MapArray.from_arrays(pa.array(offsets, mask=empty), keys, pa.array(values) if isinstance(values, np.ndarray) else values)
