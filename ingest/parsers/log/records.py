"""What the log's engine and its recognisers say to each other.

The engine cuts bytes into lines, takes launcher prefixes, colours and containers off, and offers each `LogLine` to the open groups
and then to the recognisers. A recogniser finds the records of one kind in a line's text; several may stand in one
line, glued by ranks that share a terminal. A group is a record of several lines (an argument dump, a theory block): it is fed the lines that
follow until it closes, and lines of other ranks that fall between are left to the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from ingest.parsers.base import Row


@dataclass(slots=True)
class LogLine:
    """One logical line. `rank` only where a prefix proves the GLOBAL rank; `rank_label` keeps weaker hints (`task 3`, `local 2`)."""

    text: str
    number: int
    offset: int
    rank: int | None = None
    rank_label: str | None = None
    host: str | None = None
    at: datetime | None = None
    prefix: dict[str, str] = field(default_factory=dict)


class Fed(Enum):
    """What a group did with a line."""

    TAKEN = "taken"
    FOREIGN = "foreign"
    CLOSED = "closed with this line"
    CLOSED_BEFORE = "closed before this line, which is still to be offered to others"


class Group(Protocol):
    """An open record of several lines. Groups live in memory only: a piece never ends inside one."""

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Take the line, leave it to others, or close (emitting the record)."""

    def finish(self, context: Context) -> None:
        """Emit what there is: the artifact ended."""


class Recognizer(Protocol):
    """Finds the records of one kind. `literals`: at least one of them occurs in every line it wants (the fast pre-filter)."""

    @property
    def literals(self) -> tuple[str, ...]:
        """Strings of which a wanted line has at least one."""

    def take(self, line: LogLine, context: Context) -> bool:
        """Emit the records in the line through `context`; open groups with `context.open`. True where something was found."""


@dataclass
class Context:
    """What is known at a line, and where records go. Plain values here survive from piece to piece (as JSON)."""

    run_index: int = 0
    iteration: int | None = None
    """Last training iteration printed: for records that name none, such as out-of-memory errors."""
    phase: str | None = None
    file_rank: int | None = None
    """Global rank that the artifact's name proves."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Small JSON values a recogniser keeps between lines (such as `header_seen`)."""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def emit(self, table: str, line: LogLine, **columns: Any) -> Row:
        """Add a row; rank, rank_label come from the line and the file's name where not given."""
        row: Row = {"run_index": self.run_index, "line": line.number, **columns}
        if "rank" not in columns:
            row["rank"] = line.rank if line.rank is not None else self.file_rank
        if row["rank"] is None and "rank_label" not in columns:
            row["rank_label"] = line.rank_label
        self.rows.setdefault(table, []).append(row)
        return row

    def reject(self, line: LogLine, text: str, reason: str) -> None:
        """Keep a stretch that looked like a record and was not understood."""
        self.rows.setdefault("rejects", []).append(
            {"run_index": self.run_index, "line": line.number, "offset_bytes": line.offset, "text": text[:2000], "reason": reason}
        )

    def open(self, group: Group) -> None:
        """From the next line on, feed this group."""
        self.groups.append(group)

    def new_attempt(self) -> None:
        """A further job attempt starts in the same artifact: open groups must have been finished by the engine."""
        self.run_index += 1
        self.iteration = None
        self.phase = None
        self.facts.clear()
