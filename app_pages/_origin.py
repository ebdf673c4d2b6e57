"""Where a figure was read: artifact and line, and the lines around it as plain text while the file is still there."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import streamlit as st

from analysis.rows import Source
from app_pages._shared import place, safe
from ingest.artifacts import open_stream
from ingest.errors import LedgerError

AROUND = 3
WIDTH = 400
BLOCK_LINES = 400
"""So far above its last line a block's other lines are looked for."""
LINES_READ = 2_000_000
"""A line further down is not looked for: the page would wait for it."""


def origin(source: Source) -> None:
    """The place, with the lines around it or why they cannot be shown."""
    st.caption(safe(f"Read at {place(source)}"))
    if source.line is None:
        return
    found = context(source.artifact, source.line)
    if found:
        st.code(found, language=None, wrap_lines=True)
    else:
        st.caption("The file is no longer where it was read, or the line is too far down to show here.")


def context(path: str, line: int) -> str:
    """The lines around `line`, numbered and cut to `WIDTH`; empty where the file is gone or an archive's member."""
    now = _as_it_lies(path)
    return "" if now is None or line > LINES_READ else _context(path, now, line)


def _as_it_lies(path: str) -> tuple[str, int, int, int] | None:
    """What tells the file of this path from another one, and from itself before it was written to; null where there is none.

    A cache by the path alone would go on saying that a file is gone after it came back, and show the lines of one that was replaced.
    """
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (os.path.abspath(path), found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


@st.cache_data(max_entries=256, show_spinner="Finding the line")
def _context(path: str, now: tuple[str, int, int, int], line: int) -> str:
    try:
        with open_stream(path) as stream:
            lines = islice(enumerate(stream, 1), max(0, line - 1 - AROUND), line + AROUND)
            kept = deque(lines, maxlen=2 * AROUND + 1)
    except (OSError, LedgerError):
        return ""
    return "\n".join(f"{'>' if number == line else ' '} {number:>7}  {_text(raw)}" for number, raw in kept)


def as_sum(what: str, parts: Mapping[str, int], total: int) -> None:
    """A computed size as the sum it is, to the byte, largest part first."""
    shown = [f"{size:+17,} B  {name.replace('_', ' ')}" for name, size in sorted(parts.items(), key=lambda one: -abs(one[1])) if size]
    st.code("\n".join((*shown, f"{total:17,} B  = {what}")), language=None, wrap_lines=True)


def located(last: Source, words: str) -> Source:
    """The line of a printed block that has these words, looked for upward from the block's last line; the last line where it is not found.

    Lines of other ranks fall between those of a block, so that counting back from its end would name the wrong one.
    """
    now, sought = _as_it_lies(last.artifact), " ".join(words.split())
    line = None if last.line is None or now is None or not sought or last.line > LINES_READ else _line_of(last.artifact, now, last.line, sought)
    return last if line is None else Source(last.artifact, line)


@st.cache_data(max_entries=256, show_spinner=False)
def _line_of(path: str, now: tuple[str, int, int, int], last: int, words: str) -> int | None:
    try:
        with open_stream(path) as stream:
            above = deque(islice(enumerate(stream, 1), last), maxlen=BLOCK_LINES)
    except (OSError, LedgerError):
        return None
    return next((number for number, raw in reversed(above) if words in " ".join(raw.decode("utf-8", "replace").split())), None)


def _text(raw: bytes) -> str:
    text = raw.rstrip(b"\r\n").decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:WIDTH]) + (" ..." if len(text) > WIDTH else "")
