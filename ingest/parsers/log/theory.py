"""The printed theoretical footprint as one record: every line of its block, of every release and of the forks that print one.

Rank 0 prints the block without a rank and without flushing, so lines of other ranks fall between, and the report's iteration
stands only in rank 0's memory line that follows. The group therefore stays open after the footprint until that line comes, over the other
ranks' memory lines and a few others; where it never comes, the iteration on which all those ranks agree is the report's, because the
same call prints them. "MB" are MiB.
"""

from __future__ import annotations

import re

from ingest.parsers.base import Row
from ingest.parsers.log.quantities import number, size
from ingest.parsers.log.records import Context, Fed, LogLine
from ingest.parsers.log.wrapped import joins

_LINE = re.compile(
    r"(?:>+ ?(?:\[FS\] )?)?(?:Number of (?:[\w-]{1,40} ){0,6}?(?:parameters|activation) in [\w ]{0,80}in billions:"
    r"|Number of (?:parameters|activation) in [\w ]{0,80}billions:|(?:Total n|N)umber of (?:\w{1,40} ){0,6}parameters in billions:"
    r"|compute_activation_memory\w*|Activation memory footprint[^:=|]*:|Memory penalty from interleaved schedule:"
    r"|Number of in-flight microbatches:|num_bytes_per_parameter=|(?:ValueError: )?Theoretical memory footprints).*")
_GLUED = re.compile(
    r"\[Rank \S+\]|[A-Za-z][\w.-]{0,63}:\d+:\d+ \[\d+\] \S*\s?NCCL |\s{0,4}\[\d{4}-\d\d-\d\d [\d:.]+\]\s*iteration|\[default\d+\]:|"
    r"\s{1,4}iteration\s{1,16}\d+/")
_PART = re.compile(r"(?P<name>[A-Za-z][\w /()-]{0,80}?)=(?P<value>-?\d+(?:\.\d+)?) (?P<unit>MB|MiB|GB|GiB)\b")
_BILLIONS = re.compile(r"(?P<name>[A-Z][^:]*?) in billions:\s*(?P<value>-?\d+(?:\.\d+)?)\s*$")
_MEGABYTES = re.compile(r"(?P<name>[A-Z][^:]*?):\s*(?P<value>-?\d+(?:\.\d+)?) (?P<unit>MB|GB)\s*$")
_LAYER = re.compile(r"Activation memory footprint per transformer layer(?: \(precise[^)]*\))?$")
_PLAIN = re.compile(r"(?P<name>[A-Za-z][\w -]{0,80}?)\s*[:=]\s*(?P<value>-?\d+(?:\.\d+)?)\s*$")
_REPORT = re.compile(r"\[Rank 0\] \(after (\d+) iterations?\)")
_TRAINING = re.compile(r"iteration\s+\d+/\s*\d+\s*\|")
_WHOLE = re.compile(r"Theoretical memory footprints: weight and optimizer=(\d+\.\d\d) MB(?:, activation=(\d+\.\d\d) MB, total=(\d+\.\d\d) MB)?$")
_COLUMNS = {"weight and optimizer": "weight_and_optimizer_bytes", "activation": "activation_bytes", "total": "total_bytes"}
_MEMORY = re.compile(r"\[Rank [^\]]*\] \(after (\d+) iterations?\) memory ")
WAIT_LINES = 40
"""So many lines that are no memory lines a block waits for rank 0's, or for its footprint."""


class TheoryBlocks:
    """Opens a block at its first line; the open block takes the rest."""

    literals = ("Theoretical memory footprints", "in billions", "compute_activation_memory", "Activation memory footprint",
                "Memory penalty from interleaved", "in-flight microbatches", "num_bytes_per_parameter=")

    def take(self, line: LogLine, context: Context) -> bool:
        """True where a block begins here."""
        if not (said := _said(line.text)):
            return False
        block = Block(line, said)
        context.open(block)
        return True


class Block:
    """An open block: lines until the footprint, then the wait for the report's iteration."""

    def __init__(self, line: LogLine, said: str) -> None:
        self.lines = [(line, said)]
        self.waited = 0
        self.blank_after = False
        self.iterations: set[int] = set()
        self.torn: list[str] = []

    @property
    def done(self) -> bool:
        """Whether the footprint line, or the sentence in its place, has been seen."""
        return "Theoretical memory footprints" in self.lines[-1][1]

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Take the block's lines; close at rank 0's report, at the next block, or after a long wait."""
        said = _said(line.text)
        if not said and self._goes_on(line):
            return Fed.TAKEN
        if self.done and not self.blank_after and self.waited == 0:
            self.blank_after = line.number == self.lines[-1][0].number + 2 or not line.text.strip()
        if said and self.done:
            self._emit(context, None)
            return Fed.CLOSED_BEFORE
        if said:
            self.lines.append((line, said))
            self.waited = 0
            return Fed.FOREIGN if _TRAINING.search(line.text) or "] (" in line.text else Fed.TAKEN
        if match := _REPORT.search(line.text):
            self._emit(context, int(match[1]))
            return Fed.CLOSED_BEFORE
        self._note(line)
        if self.waited > WAIT_LINES or len(self.iterations) > 1:
            self._emit(context, None)
            return Fed.CLOSED_BEFORE
        return Fed.FOREIGN

    def _goes_on(self, line: LogLine) -> bool:
        """Whether the line is the rest of a footprint line that a wrap tore: only where all pieces make a whole one."""
        if not self.done or line.number != self.lines[-1][0].number + len(self.torn) + 1 or len(self.torn) > 6:
            return False
        if "total=" in self.lines[-1][1] and _row([self.lines[-1][1]]) is not None:
            return False
        self.torn.append(line.text)
        joined = next((one for one in joins([self.lines[-1][1], *self.torn]) if _whole(one)), None)
        if joined:
            self.lines[-1] = (self.lines[-1][0], joined)
        return bool(joined)

    def _note(self, line: LogLine) -> None:
        found = {int(one) for one in _MEMORY.findall(line.text)} if self.done else set()
        self.iterations |= found
        self.waited += not found

    def finish(self, context: Context) -> None:
        """The artifact, or the attempt, ended."""
        self._emit(context, None)

    def _emit(self, context: Context, iteration: int | None) -> None:
        texts = [said for _, said in self.lines]
        at = self.lines[-1][0]
        row = _row(texts)
        if iteration is None and len(self.iterations) == 1:
            iteration = min(self.iterations)
        if row is None:
            context.reject(at, texts[-1], "a theoretical footprint that breaks off")
            return
        text = "\n".join([*texts, ""] if self.blank_after else texts)
        context.emit("theory_reports", at, iteration=iteration, **row, text=text)


def _said(text: str) -> str | None:
    """The block's line in a line of the log, without what another rank glued to it."""
    match = _LINE.search(text)
    if not match:
        return None
    glued = _GLUED.search(text, match.start() + 1)
    end = match.end() if not glued else glued.start() + 2 * (glued.group().startswith("MB") and text[glued.start() - 1] == " ")
    return text[match.start():end].rstrip()


def _row(texts: list[str]) -> Row | None:
    """The columns of a block; None where its footprint line is cut."""
    row: Row = {"producer": _producer(texts), "branch_marker": next((one for one in texts if one.startswith("compute_activation_memory")), None)}
    components: dict[str, float] = {}
    for text in texts:
        _detail(text, row, components)
    foot = next((one for one in texts if "Theoretical memory footprints" in one), None)
    if foot is None:
        row["shape"] = "detail"
    elif "not yet supported" in foot or "not supported" in foot:
        row["shape"] = "unsupported"
    elif not _footprint(foot, row, components):
        return None
    row["components"] = components or None
    return row


def _footprint(text: str, row: Row, components: dict[str, float]) -> bool:
    parts = list(_PART.finditer(text))
    if not parts or text[parts[-1].end():].strip(" ."):
        return False
    for part in parts:
        value = size(part["value"], part["unit"])
        if part["name"] in _COLUMNS:
            row[_COLUMNS[part["name"]]] = value
        else:
            components[part["name"]] = float(value)
    row["shape"] = "components" if "weight_and_optimizer_bytes" not in row else "full" if "activation_bytes" in row else "weights_only"
    return True


def _whole(text: str) -> bool:
    """Whether a joined footprint line is Megatron's to the last digit: its total is the sum of its parts."""
    match = _WHOLE.search(text)
    if not match or not match[2]:
        return bool(match)
    return abs(float(match[1]) + float(match[2]) - float(match[3])) < 0.021


def _detail(text: str, row: Row, components: dict[str, float]) -> None:
    text = text.split("Theoretical")[0].removeprefix(">>> [FS] ").lstrip("> ")
    if match := _BILLIONS.match(text):
        components[match["name"]] = round((number(match["value"]) or 0.0) * 1e9)
    elif match := _MEGABYTES.match(text):
        value = size(match["value"], match["unit"])
        if _LAYER.match(match["name"]):
            row["activation_per_layer_bytes"] = value
        else:
            components[match["name"]] = float(value)
    elif match := _PLAIN.match(text):
        if match["name"] == "Number of in-flight microbatches":
            row["in_flight_microbatches"] = int(float(match["value"]))
        else:
            components[match["name"]] = float(match["value"])


def _producer(texts: list[str]) -> str:
    whole = "\n".join(texts)
    if "[FS]" in whole or " attn parameters" in whole or "dense mlp parameters" in whole:
        return "flagscale"
    if "model states=" in whole:
        return "megatron-bridge"
    if "num_bytes_per_parameter=" in whole or "in every GPU" in whole:
        return "estimator"
    return "megatron-lm"
