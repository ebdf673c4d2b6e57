"""What a rank's memory snapshot says of its out-of-memory error: how much of the cache was split, pending on a stream or in a private pool.

A message tells only the sum of the cache that was of no use; a snapshot that was written when the request failed tells it apart. Snapshot and error
belong together where both name the rank and the trace holds a failed request of the size in the message (printed sizes are rounded: 1 %); an error
whose rank is not told is joined by a size that only one snapshot holds. Where the trace holds no failed request but the file was written at one, its
end is that instant. The join is said with the verdict. Only failing ranks' snapshots are laid out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.database import records
from analysis.oom.case import Cached
from analysis.rows import OomSnapshot, RunSnapshot, Source
from analysis.snapshot.layout import total
from analysis.snapshot.stored import Stored, from_lake, stored
from analysis.snapshot.view import Device, devices
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

    from analysis.snapshot.oom import Oom as TraceOom

MOST_LAID_OUT = 8
_ALIKE = 0.01
_ABOUT = "SELECT artifact, iteration, trigger, rank_label FROM snapshots WHERE run = ?"


@dataclass(frozen=True, slots=True)
class Told:
    """What a snapshot tells of one error: the parts of the cache, and which file and instant said it."""

    cached: Cached | None
    snapshot: OomSnapshot


def run_snapshots(connection: duckdb.DuckDBPyConnection, run: str) -> tuple[RunSnapshot, ...]:
    """Every device of the snapshots of a run, by rank. A file tells no attempt: those of all attempts of the run are named."""
    about = {row["artifact"]: row for row in records(connection, _ABOUT, [run])}
    return tuple(_run_snapshot(one, about[one.artifact]) for one in (stored(connection, run) if about else ()))


def _run_snapshot(one: Stored, about: Mapping[str, Any]) -> RunSnapshot:
    return RunSnapshot(one.rank, about["rank_label"], one.device, about["iteration"], about["trigger"], one.events, one.peak_requested_bytes,
                       one.peak_reserved_bytes, one.artifact, Source(one.path))


class Snapshots:
    """The snapshots of a run that errors are held against; each is laid out at most once, and only when an error asks."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run: str, known: Sequence[RunSnapshot]) -> None:
        self._connection, self._known = connection, known
        self._stored: Mapping[tuple[str, int], Stored] = {(one.artifact, one.device): one for one in (stored(connection, run) if known else ())}
        self._laid: dict[tuple[str, int], Device | None] = {}

    def of(self, rank: int | None, requested_bytes: int | None) -> Told | None:
        """What tells of an error of this rank and request; null where no snapshot can be joined with it."""
        beside = [one for one in self._known if one.rank == rank and rank is not None] or [
            one for one in self._known if one.rank is None or rank is None]
        by_rank = [one for one in beside if one.rank == rank and rank is not None]
        found = [(one, device, event) for one in beside if (device := self._device(one)) for event in _failed(device, requested_bytes)]
        if found and (by_rank or len({one.artifact for one, _, _ in found}) == 1):
            one, device, event = found[-1]
            how = f"rank {rank} and the size of the request" if by_rank else "the size of the request: only this file holds one"
            return Told(_parts(event), _named(one, how, event.event, event.because))
        ends = [one for one in by_rank if one.trigger == "oom"]
        for one in ends[-1:]:
            device = self._device(one)
            if device is None:
                return Told(None, _named(one, f"rank {rank}, written when it ran out of memory", None, "only the summary of it is in the lake"))
            if not device.ooms:
                return Told(_at_end(device), _named(one, f"rank {rank}, written when it ran out of memory", None, "as the device stood at its end"))
        return None

    def _device(self, one: RunSnapshot) -> Device | None:
        key = (one.artifact, one.device)
        if key not in self._laid and len(self._laid) < MOST_LAID_OUT:
            self._laid[key] = self._read(key)
        return self._laid.get(key)

    def _read(self, key: tuple[str, int]) -> Device | None:
        try:
            return devices(from_lake(self._connection, *key))[0] if key in self._stored else None
        except LedgerError:
            return None


def _failed(device: Device, requested_bytes: int | None) -> list[TraceOom]:
    """Failed requests of a trace of about the size in the message."""
    return [one for one in device.ooms if requested_bytes is None or abs(one.request_bytes - requested_bytes) <= _ALIKE * requested_bytes]


def _parts(event: TraceOom) -> Cached:
    return Cached(event.own_split_free_bytes + event.own_whole_free_bytes, event.pending_bytes + event.other_streams_free_bytes,
                  event.private_free_bytes)


def _at_end(device: Device) -> Cached:
    pools = device.layout.pools()
    shared: list[Any] = [pool for pool in pools if not pool.private]
    return Cached(total(shared, "split_free_bytes") + total(shared, "whole_free_bytes"), total(pools, "pending_bytes"),
                  sum(pool.free_bytes for pool in pools if pool.private))


def _named(one: RunSnapshot, joined: str, event: int | None, said: str) -> OomSnapshot:
    return OomSnapshot(one.source, joined, event, said)
