"""The probe's lines run beside any torch, and what they write is read back."""

from __future__ import annotations

import argparse
import io
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from cli import main
from cli.probe import add_arguments, snippet
from ingest.errors import LedgerError
from ingest.parsers.memory_stats import MEMORY_STATS

GIB = 2**30


class Cuda:
    """An allocator that peaks where it is told, and forgets its peak when it is reset."""

    def __init__(self):
        self.peak, self.history, self.dumped = 0, None, []
        self.memory = SimpleNamespace(_record_memory_history=self._record, _dump_snapshot=self.dumped.append)

    def _record(self, max_entries):
        self.history = max_entries

    def memory_stats(self):
        return {"allocated_bytes.all.current": 10 * GIB, "allocated_bytes.all.peak": max(self.peak, 10 * GIB),
                "reserved_bytes.all.current": 40 * GIB, "reserved_bytes.all.peak": 41 * GIB, "num_alloc_retries": 0, "num_ooms": 0}

    def mem_get_info(self):
        return 20 * GIB, 79 * GIB

    def reset_peak_memory_stats(self):
        self.peak = 0


@pytest.fixture
def torch(monkeypatch):
    module = ModuleType("torch")
    module.cuda = Cuda()
    module.distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 3)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def lines(*options):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return snippet(parser.parse_args(options))


def trained(torch, peaks_gib, *options):
    loop = {}
    exec(compile(lines(*options), "probe", "exec"), loop)  # the user's training script: our own text, not input
    for step, peak in enumerate(peaks_gib, 1):
        torch.cuda.peak = peak * GIB
        loop["memory_probe"](step)
    loop["PROBE"]["file"].close()


def test_what_the_probe_writes_is_parsed_back(torch, tmp_path):
    trained(torch, [30, 50, 20], "--directory", str(tmp_path / "stats"))
    [file] = (tmp_path / "stats").iterdir()
    data = file.read_bytes()
    assert MEMORY_STATS.matches(data, file.name)
    [piece] = MEMORY_STATS.parse(io.BytesIO(data), file.name)
    memory = piece.rows["rank_memory"]
    assert [(row["rank"], row["iteration"], row["scope"]) for row in memory] == [(3, 1, "interval"), (3, 2, "interval"), (3, 3, "interval")]
    assert [row["max_allocated_bytes"] for row in memory] == [30 * GIB, 50 * GIB, 20 * GIB]
    assert {(row["device_used_bytes"], row["device_total_bytes"], row["valid"]) for row in memory} == {(59 * GIB, 79 * GIB, True)}
    assert all(row["at"] for row in memory)
    assert set(json.loads(data.splitlines()[0])) == {
        "rank", "iteration", "time", "scope", "device_total_bytes", "device_free_bytes", "stats"}
    assert torch.cuda.history is None


def test_every_n_steps_keeps_the_peak_of_one_step(torch, tmp_path):
    trained(torch, [70, 30, 70, 31], "--directory", str(tmp_path), "--every", "2")
    written = [json.loads(line) for line in (tmp_path / "memory_stats_rank3.jsonl").read_text().splitlines()]
    assert [(one["iteration"], one["stats"]["allocated_bytes.all.peak"] // GIB) for one in written] == [(2, 30), (4, 31)]


def test_snapshots_at_chosen_and_high_load_steps_of_chosen_ranks(torch, tmp_path):
    peaks = [30, 30, 30, 30, 30, 30, 40, 30, 45, 50]
    trained(torch, peaks, "--directory", str(tmp_path), "--snapshot-ranks", "3,8", "--snapshot-steps", "2", "--snapshot-above", "1.05")
    assert [path.rsplit("_", 1)[1] for path in torch.cuda.dumped] == ["step2.pickle", "step7.pickle", "step9.pickle"]
    assert torch.cuda.history == 100_000


def test_other_ranks_write_no_snapshot(torch, tmp_path):
    trained(torch, [30, 30], "--directory", str(tmp_path), "--snapshot-ranks", "0", "--snapshot-steps", "1,2")
    assert torch.cuda.dumped == []
    assert torch.cuda.history is None


def test_the_snippet_is_short_and_imports_nothing_of_this_project():
    text = lines()
    assert len(text.splitlines()) <= 40
    assert {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))} == {"json", "os", "statistics", "time", "torch"}


@pytest.mark.parametrize("options", [
    ["--every", "0"], ["--snapshot-ranks", "x"], ["--snapshot-steps", "5"], ["--snapshot-ranks", "0", "--snapshot-above", "0.9"],
])
def test_settings_that_cannot_be_meant_are_a_sentence(options):
    with pytest.raises(LedgerError):
        lines(*options)


def test_the_verb_prints_it(capsys):
    assert main(["probe", "--directory", "it's here"]) == 0
    assert 'directory="it\'s here"' in capsys.readouterr().out
