"""Records that a terminal, a mail or a paste wrapped over several lines, put together again.

A wrap falls anywhere, inside words and numbers too, and often eats the blank it falls on. So the pieces are joined without and with a
blank at each seam, and a join counts only where the recogniser finds the whole record in it: a number cut in two is never taken for a
number. A line that begins with something of its own is no piece; without a whole record nothing is joined and the first line stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise, product

from ingest.parsers.log.records import Context, Fed, LogLine

MOST_PIECES = 12
LONGEST_RECORD = 1 << 16
"""No record has so many characters: what grows beyond is not joined again with every line."""
_MOST_MIXED_SEAMS = 6
_MOST_WITHOUT_GAIN = 6
_OWN = re.compile(
    r"\s*(?:\[|\(after |\(before |[-=*#+]{5,}|[|+][-=]|\{|\}|iteration\s+\d|validation |time \(ms\)|\(m\w+, m\w+\) time|Theoretical |Traceback |"
    r"(?:Total n|N)umber of |compute_activation|Activation memory|saving |successfully |File \"|using |building |setting |> |[A-Z]+:\w|"
    r"(?:INFO|WARNING|ERROR|DEBUG)\b|\d{4}[-/]\d\d[-/]\d\d[ T]|[\w.-]+:\d+:\d+ \[\d|torch\.(?!b?float|u?int|half)|\w*Error:)")

_INDENT = re.compile(r"> |\s{2,}")
_ENDS_IN_NUMBER = re.compile(r"\d\.?$")

Read = Callable[[LogLine, Context, str], None]


class Wrapped:
    """An open record: `whole` tells how much of it a join shows (0 where it is not whole), `read` emits one, `alone` its first line only.

    `closes`: a whole record has no more to come; without it the record grows as long as pieces add to it.
    """

    def __init__(self, line: LogLine, text: str, whole: Callable[[str], int], read: Read, alone: Read, *, closes: bool = True,
                 most: int = MOST_PIECES) -> None:
        self.line, self.pieces, self.closes, self.most = line, [text], closes, most
        self.whole, self.read, self.alone = whole, read, alone
        self.best, self.best_pieces = (text, 1) if whole(text) else ("", 0)

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Take pieces until the record is whole or a line is none."""
        late = len(self.pieces) >= self.most or (self.best and len(self.pieces) >= self.best_pieces + _MOST_WITHOUT_GAIN)
        late = late or sum(map(len, self.pieces)) + len(line.text) > LONGEST_RECORD
        if late or _OWN.match(line.text) or not line.text.strip() or line.rank not in (None, self.line.rank):
            self.finish(context)
            return Fed.CLOSED_BEFORE
        self.pieces.append(line.text)
        best = max(joins(self.pieces), key=self.whole)
        if self.whole(best) > (self.whole(self.best) if self.best else 0):
            self.best, self.best_pieces = best, len(self.pieces)
            if self.closes:
                self.finish(context)
                return Fed.CLOSED_BEFORE  # another record may be glued to its last piece
        return Fed.FOREIGN

    def finish(self, context: Context) -> None:
        """Emit the whole record, or else what its first line says."""
        if self.best:
            self.read(self.line, context, self.best)
        else:
            self.alone(self.line, context, self.pieces[0])


def joins(pieces: list[str]) -> Iterator[str]:
    """The pieces put together with nothing at each seam, with a blank at each, then with each mixture; words of equal lines were cut anywhere.

    Without the indentation of pieces as well. A seam between two digits gets no blank: no record has one there, and half a number would look
    like a number.
    """
    yield from _joins(pieces)
    if any(_INDENT.match(piece) for piece in pieces[1:]):
        yield from _joins([pieces[0], *(_INDENT.sub("", piece) for piece in pieces[1:])])


def _joins(pieces: list[str]) -> Iterator[str]:
    seams = len(pieces) - 1
    same = ["", " "] if len({len(piece) for piece in pieces[:-1]}) == 1 else [" ", ""]
    number = [bool(_ENDS_IN_NUMBER.search(left) and right[:1] in "0123456789.") for left, right in pairwise(pieces)]
    for blanks in [*((one,) * seams for one in same), *(product(same, repeat=seams) if 1 < seams <= _MOST_MIXED_SEAMS else ())]:
        yield pieces[0] + "".join(("" if cut else blank) + piece for cut, blank, piece in zip(number, blanks, pieces[1:], strict=True))
