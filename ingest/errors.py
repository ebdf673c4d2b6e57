"""The one error a user can cause, and the exit codes of commands.

A user's mistake is answered with what happened, where (file, line or byte) and what to do; the command line
prints those three and ends with `USAGE`, never a traceback. Anything else that escapes is a defect of ours.
`QUARANTINED` is the code of a command that went on without some of its inputs: an error that ends it is never that.
"""

from __future__ import annotations

OK = 0
FINDINGS = 1
USAGE = 2
QUARANTINED = 3


class LedgerError(Exception):
    """What went wrong, where, and what to do about it."""

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.todo:
            parts.append(self.todo)
        return " — ".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the trip from a worker process."""
        return (_rebuild, (self.what, self.where, self.todo))


def _rebuild(what: str, where: str, todo: str) -> LedgerError:
    return LedgerError(what, where=where, todo=todo)
