"""A batch that is committed while it is read: each commit can be opened at once, and all of them hold what one commit would."""

from __future__ import annotations

from pathlib import Path

from analysis.database import connect
from ingest.lake import Lake
from ingest.pipeline import ingest

FILES = 130
"""Three units of at most 64 small files."""


def ranks(lake: Lake) -> list[int]:
    return [rank for rank, in connect(lake).execute("SELECT rank FROM memory_stats ORDER BY rank").fetchall()]


def written(folder: Path) -> Path:
    folder.mkdir()
    for rank in range(FILES):
        (folder / f"memory_stats_rank{rank}.jsonl").write_text(f'{{"rank": {rank}, "stats": {{"allocated_bytes.all.peak": {rank + 1}}}}}\n')
    return folder


def test_what_is_read_so_far_can_be_opened_while_the_rest_is_read(tmp_path: Path) -> None:
    lake, seen = Lake(tmp_path / "lake"), []
    summary = ingest([written(tmp_path / "run")], lake, workers=1, commit_seconds=0, committed=lambda runs: seen.append((sorted(runs), ranks(lake))))
    assert [runs for runs, _ in seen] == [["run"]] * 3
    counts = [len(found) for _, found in seen]
    assert counts == sorted(set(counts))
    assert 0 < counts[0] < FILES
    assert seen[-1][1] == list(range(FILES)) == ranks(lake)
    assert (summary.files_new, summary.rows["memory_stats"], summary.runs) == (FILES, FILES, ("run",))


def test_without_the_wish_a_batch_is_one_commit(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    ingest([written(tmp_path / "run")], Lake(tmp_path / "lake"), workers=1, committed=lambda runs: seen.append(sorted(runs)))
    assert seen == [["run"]]
