"""What the paths of Megatron-LM, torchtitan and others tell of a snapshot."""

from __future__ import annotations

import pytest

from ingest.parsers.snapshot.filenames import told


@pytest.mark.parametrize(("path", "rank", "iteration", "trigger"), [
    ("run/snapshot_3.pickle", 3, None, "step"), ("run/snapshot_12.pickle.gz", 12, None, "step"), ("snapshot.pickle", None, None, None),
    ("run/memory_snapshot_0.pkl.zst", 0, None, "step"), ("run/snapshot_oom_rank_5.pickle", 5, None, "oom"),
    ("run/snapshot_oom_rank-5.pickle", 5, None, "oom"), ("oom_rank-7_snapshot.pickle", 7, None, "oom"),
    ("a.zip!run/snapshot_3.pickle", 3, None, "step"),
    ("out/memory_snapshot/iteration_10/rank4_memory_snapshot.pickle", 4, 10, "step"),
    ("out/memory_snapshot/iteration_9_exit/rank4_memory_snapshot.pickle", 4, 9, "oom"),
    ("out/iteration_10/leaf/rank4_memory_snapshot.pickle", 4, 10, "step"), ("memory_snapshot_rank0_step6.pkl", 0, 6, "step"),
    ("snapshot_step_100.pickle", None, 100, "step"), ("snapshot-iter_0000200.pickle", None, 200, "step"), ("mem_bs_8.pickle", None, None, None),
    ("snapshot_20251129.pickle", None, None, None), ("snapshot_2025-11-29-16-00_3.pickle", 3, None, "step"),
    ("snapshot_2025_11_29.pickle", None, None, None), ("snapshot_2025-11-29.pickle", None, None, None),
    ("model_c256_ctx_512.pickle", None, None, None),
    ("room_3.pickle", 3, None, "step"), ("bedroom.pickle", None, None, None), ("", None, None, None),
    ("snapshot_attempt_0/3/x.pickle", None, None, None), ("node0/snapshot_rank_11.pickle", 11, None, None),
])
def test_told(path: str, rank: int | None, iteration: int | None, trigger: str | None) -> None:
    found = told(path)
    assert (found.rank, found.iteration, found.trigger) == (rank, iteration, trigger)
