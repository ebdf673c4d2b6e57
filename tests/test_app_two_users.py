"""Two readers at once on one real server, each in a thread of its own: neither sees the other's upload, run, settings, query, answer or error.

Both go through the same steps at the same moments, held together by a barrier, so that their scripts run between each other's lines. Each keeps all
that its browser was given; the other's mark may be in none of it until the other publishes.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.load.server import served
from tests.load.session import Page, Session

GIB = 2**30


@dataclass(slots=True)
class User:
    """A reader: a mark that all its own things carry, the peak of its run, the device memory it counts with."""

    mark: str
    peak_gib: int
    memory_gib: int
    steps: threading.Barrier
    given: list[bytes] = field(default_factory=list)

    def uses(self, address: str) -> None:
        """Upload, look, set, ask, err, and look again."""
        with Session(address) as session:
            self._take(session.open())
            session.upload("memory_stats_rank0.jsonl", self._stats())
            session.put("text_input", "Run name", self.mark)
            self._take(session.click("Read it"))
            self._take(session.until("1 file: 1 new"))
            overview = self._take(session.open("overview"))
            assert f"{self.peak_gib}.0 GiB" in overview.text
            session.put("text_input", "Device memory", f"{self.memory_gib}GiB")
            self._take(session.again())
            assert f"{self.memory_gib * GIB:,} bytes" in self._take(session.open("settings")).text
            session.open("sql")
            session.put("text_area", "One SELECT", f"SELECT '{self.mark}' || '-answer' AS told, COUNT(*) AS n FROM rank_memory")
            assert f"{self.mark}-answer".encode() in self._take(session.click("Ask")).raw
            session.put("text_area", "One SELECT", f"SELECT 1 FROM nothing_of_{self.mark}")
            assert f"nothing_of_{self.mark}" in "".join(self._take(session.click("Ask")).errors)
            for page in ("", "findings", "fleet", "overview"):
                found = self._take(session.open(page))
                assert found.faults == []
                assert page in ("", "fleet") or f"run={self.mark}" in session.query

    def publishes(self, address: str) -> None:
        """Upload into the lake that everybody shares."""
        with Session(address) as session:
            session.open()
            session.upload("memory_stats_rank0.jsonl", self._stats())
            session.put("text_input", "Run name", f"{self.mark}-published")
            session.put("checkbox", "Publish to the lake", True)
            session.click("Read it")
            session.until("1 file: 1 new")

    def _take(self, page: Page) -> Page:
        """Keep what came, and wait until the other is as far."""
        self.given.append(page.raw)
        assert page.faults == []
        self.steps.wait(120)
        return page

    def _stats(self) -> bytes:
        peak = self.peak_gib * GIB
        stats = {"allocated_bytes.all.peak": peak, "allocated_bytes.all.current": GIB, "reserved_bytes.all.peak": peak}
        return json.dumps({"rank": 0, "iteration": 1, "scope": "interval", "stats": stats}).encode() + b"\n"


@pytest.mark.long
def test_two_at_once_see_nothing_of_each_other_until_it_is_published(tmp_path: Path) -> None:
    steps = threading.Barrier(2)
    north, south = User("northmark", 11, 40, steps), User("southmark", 22, 60, steps)
    with served(tmp_path / "lake", tmp_path) as server:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(_guarded, user, server.address) for user in (north, south)]:
                done.result()
        for one, other in ((north, south), (south, north)):
            seen = b"\n".join(one.given)
            assert one.mark.encode() in seen
            assert f"{one.peak_gib}.0 GiB".encode() in seen
            assert other.mark.encode() not in seen
            assert f"{other.peak_gib}.0 GiB".encode() not in seen
            assert f"{other.memory_gib * GIB:,}".encode() not in seen
        assert not (tmp_path / "lake").exists()
        north.publishes(server.address)
        with Session(server.address) as third:
            seen = third.open().raw + third.open("fleet").raw + third.open("overview", run="southmark").raw
            assert b"northmark-published" in seen
            assert b"southmark\n" not in third.open("sql").raw
            assert "The link names run southmark, which is not" in third.open("overview", run="southmark").text


def _guarded(user: User, address: str) -> None:
    """A reader that fails lets the other go."""
    try:
        user.uses(address)
    except BaseException:
        user.steps.abort()
        raise
