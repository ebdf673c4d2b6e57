"""CUDA memory snapshots: never executed, read in a confined process, given as columns (`columns.SnapshotColumns`) and as tables of the lake."""

from __future__ import annotations

from ingest.parsers.snapshot.parser import SNAPSHOT, Snapshot

__all__ = ["SNAPSHOT", "Snapshot"]
