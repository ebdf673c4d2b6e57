"""Argument dumps, launch command lines and config reprs as `run_args`: values as printed, None as null.

A dump has 24 dashes around any title since 2020-12, fewer before; names of 48 characters and more have no dots; a value may be empty or
run over several lines. Pastes lose the header or the footer, so a bare `name ..... value` line counts too. What stands before the header on its
line is what some launcher puts before every line: it is taken off the dump's other lines, be the launcher known or not.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ingest.parsers.base import Row
from ingest.parsers.log.records import Context, Fed, LogLine
from ingest.parsers.log.wrapped import Wrapped

_HEADER = re.compile(r"(?<!-)-{12,}\s*(?P<title>[A-Za-z][^-]{0,120})-{12,}\s*$")
LONGEST_PREFIX = 200
_FOOTER = re.compile(r"-{8,}\s*end of (?P<title>[^-]+?)\s*-{8,}")
_DOTTED = re.compile(r"^\s*(?:> )?\s*(?P<name>[A-Za-z_]\w*) (?P<dots>\.{3,})(?: (?P<value>.*))?$")
_INSIDE = re.compile(r"(?<![\w.])(?P<name>[A-Za-z_]\w*) (?P<dots>\.{3,}) (?P<value>.*)$")
_WIDTH, _LEAST_WIDTH, _DOUBTFUL_WIDTH = 48, 31, 40
"""Name and dots together: what Megatron pads to, what a line has at least that nothing else proves, what is too much to be passed over."""
_LONG = re.compile(r"^(?:> )? {0,2}(?P<name>[A-Za-z_]\w{30,})  (?P<value>.*)$")
_TYPED = re.compile(r"^\s*(?P<name>[A-Za-z_]\w*)\s+: (?P<value>.*) \((?P<type>NoneType|bool|int|float|str|list|dict|tuple|dtype|[\w.]+)\)\s*$")
_CONFIG = re.compile(r"(?P<what>DistributedDataParallelConfig|OptimizerConfig)\((?=[A-Za-z_]\w*(?:=|$))")
MOST_CONFIG_PIECES = 80
_ITEM = re.compile(r"(?P<name>[A-Za-z_]\w*)=")
_OPTION = re.compile(
    r"(?<![\w/-])--(?P<name>[a-z][a-z0-9_-]*[a-z0-9])(?:[= ]+(?P<value>(?!-[-a-z])(?:'[^']*'|\"[^\"]*\"|[^\s\\|;&'\"]+)))?"
    r"(?P<more>(?: +(?!-[-a-z])[^\s\\|;&'\"]+)*)")
_TOKENS = re.compile(r"\['[^\]]*'--[^\]]*\]")
"""A command as Python prints its list of words."""
_MANY = re.compile(r"data_path$|^blend")
"""Options that take many words."""
_RUN_SIZES = ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
              "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size", "padded_vocab_size")
_NEVER = re.compile(
    r"\[Rank \S+\] \(|iteration\s+\d+/|NCCL (?:INFO|WARN)|^\S+: |^\[|^[-=]{12,}|^(?:using|setting|building|time|WARNING|INFO)\b|^> |^ > |"
    r"\d{1,3}%\||\d(?:it|s) ?\[\d\d:\d\d")
"""What goes on with no value; progress bars stand before a carriage return in the line of the next argument."""
LONGEST_DUMP = 3_000
"""Lines after which a dump without a footer has lost it."""


class ArgumentDumps:
    """Opens a dump at its header; bare and typed lines count alone.

    Behind an argument's dots stands a blank or the line's end (in JSON a quote or a backslash): timers have a colon there, and are many.
    """

    literals = ("--- ", "---\t", "... ", "...\n", "...\r", "...\\", '..."', "(NoneType)", "(bool)", "(int)", "(float)", "(str)",
                "(list)", "(dict)", "(tuple)", "dtype)")

    def take(self, line: LogLine, context: Context) -> bool:
        """True where a dump opens or the line is an argument."""
        header = _header(line.text)
        if header and "end of" not in header["title"] and "validation" not in header["title"]:
            context.open(Dump(header["title"], line.text[:header.start()]))
            return True
        if match := _DOTTED.match(line.text):
            if ": (" not in line.text and _width(match) >= _LEAST_WIDTH:
                _emit(context, line, match["name"], match["value"] or "", "dump")
                return True
        elif match := _inside(line.text):
            if _width(match) == _WIDTH:
                _emit(context, line, match["name"], match["value"] or "", "dump")
            else:
                context.reject(line, line.text, "an argument's line behind what is no known prefix")
            return True
        elif line.prefix.get("launcher") == "primus" and (match := _TYPED.match(line.text)):
            _emit(context, line, match["name"], "None" if match["type"] == "NoneType" else match["value"], "dump")
            return True
        return False


def _width(match: re.Match[str]) -> int:
    return len(match["name"]) + len(match["dots"])


def _header(text: str) -> re.Match[str] | None:
    """A header of a dump; of arguments where there is more before it than a paste's marks."""
    header = _HEADER.search(text) if "------------" in text else None
    if header and text[:header.start()].strip("> \t"):
        return header if header.start() <= LONGEST_PREFIX and "arguments" in header["title"] and "end of" not in header["title"] else None
    return header


def _inside(text: str) -> re.Match[str] | None:
    """An argument somewhere in a line, where its dots are as many as Megatron's or nearly so."""
    match = _INSIDE.search(text) if "....." in text and ": (" not in text else None
    return match if match and _width(match) >= _DOUBTFUL_WIDTH else None


def _prefix(before: str) -> re.Pattern[str] | None:
    """What a launcher put before the header as it stands before the dump's other lines: with other digits, such as those of a time."""
    if not before.strip("> \t"):
        return None
    return re.compile(re.sub(r"\d+", r"\\d+", re.escape(before)))


class Dump:
    """An open dump: its lines until the footer, or until something that is no argument."""

    def __init__(self, title: str, before: str = "") -> None:
        self.title, self.prefix, self.last_prefix = title, _prefix(before), before
        self.arguments: list[tuple[LogLine, str, str]] = []
        self.lines = self.strange = 0
        self.who: tuple[int | None, str | None] | None = None

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Take arguments and what continues a value; leave the rest; close at the footer."""
        self.lines += 1
        if _FOOTER.search(line.text):
            self.finish(context)
            return Fed.CLOSED
        ours = self.prefix.match(line.text) if self.prefix else None
        bare = replace(line, text=line.text[ours.end():]) if ours else line
        if match := self._argument(bare.text):
            self.arguments.append((bare, match["name"], match["value"] or ""))
            self.strange, self.last_prefix = 0, ours.group() if ours else ""
            return Fed.TAKEN
        self.strange += 1
        lost = self.strange > 40 or self.lines > LONGEST_DUMP or (not self.arguments and self.strange > 3)
        if lost or _header(line.text):
            self.finish(context)
            return Fed.CLOSED_BEFORE
        same = (ours.group() if ours else "") == self.last_prefix
        return Fed.TAKEN if same and self._continues(bare) else Fed.FOREIGN

    @staticmethod
    def _argument(text: str) -> re.Match[str] | None:
        if match := _DOTTED.match(text) or _LONG.match(text):
            return match
        return match if (match := _inside(text)) and _width(match) == _WIDTH else None

    def _continues(self, line: LogLine) -> bool:
        """Whether the line goes on with a value that holds a newline: the line right after it, and no record of its own."""
        if not self.arguments or _NEVER.search(line.text) or "memory (MB)" in line.text:
            return False
        last, name, value = self.arguments[-1]
        if line.number != last.number + self.strange or (line.rank, line.host) != (last.rank, last.host):
            return False
        self.arguments[-1] = (last, name, f"{value}\n{line.text}")
        return True

    def finish(self, context: Context) -> None:
        """Emit the arguments, and the sizes among them as a row of `runs`."""
        sizes: Row = {}
        for line, name, value in self.arguments:
            _emit(context, line, name, value, "dump")
            if name in _RUN_SIZES and value.isdigit():
                sizes[name] = int(value)
            elif name == "params_dtype":
                sizes["params_dtype"] = value.rstrip()
        if sizes:
            context.facts["dump_seen"] = True
            context.emit("runs", self.arguments[0][0], rank=None, **sizes)


class ConfigReprs:
    """DDP and optimizer dataclass reprs: what Megatron resolved, after its own mutations."""

    literals = ("DistributedDataParallelConfig(", "OptimizerConfig(")

    def take(self, line: LogLine, context: Context) -> bool:
        """One argument a field; nested brackets stay one value, and a repr that does not end in its line may go on in the next ones."""
        found = [match.start() for match in _CONFIG.finditer(line.text)]
        for start, end in zip(found, [*found[1:], None], strict=False):
            text = line.text[start:end]
            if _repr_items(text):
                _read_repr(line, context, text)
            elif end:
                _torn_repr(line, context, text)
            else:
                context.open(Wrapped(line, text, _repr_items, _read_repr, _torn_repr, most=MOST_CONFIG_PIECES))
        return bool(found)


def _repr_items(text: str) -> int:
    """How many fields a repr shows that is whole; more of them where a join cut no name."""
    match = _CONFIG.search(text)
    items, ends = _items(text[match.end():]) if match else ([], False)
    return len(items) if ends else 0


def _read_repr(line: LogLine, context: Context, text: str) -> None:
    if match := _CONFIG.search(text):
        for name, value in _items(text[match.end():])[0]:
            _emit(context, line, name, value, "ddp_config" if match["what"].startswith("Dist") else "optimizer_config")


def _torn_repr(line: LogLine, context: Context, text: str) -> None:
    """Its fields that a comma closes are certain; what is missing is counted."""
    match = _CONFIG.search(text)
    if match and "=" in text:
        _read_repr(line, context, text)
        context.reject(line, text, "a config whose end is not there")


class CommandLines:
    """`--option value` of a launch command that trains with Megatron."""

    literals = ("--tensor-model-parallel-size", "--num-layers", "--hidden-size", "--micro-batch-size", "--pipeline-model-parallel-size",
                "--seq-length",
                "--global-batch-size", "--recompute-", "--num-attention-heads", "--model-parallel-size", "--expert-model-parallel-size",
                "--context-parallel-size", "--use-distributed-optimizer", "--sequence-parallel")

    def take(self, line: LogLine, context: Context) -> bool:
        """One argument an option; an option without a value is True, as Megatron's flags are."""
        found = list(_OPTION.finditer(_TOKENS.sub(_spoken, line.text)))
        for option in found:
            name, value = option["name"].replace("-", "_"), (option["value"] or "True").strip("'\"")
            _emit(context, line, name, value + (option["more"] if _MANY.search(name) else ""), "command_line")
        return bool(found)


def _spoken(match: re.Match[str]) -> str:
    return " ".join(word for word in re.findall(r"'([^']*)'", match.group()))


def _emit(context: Context, line: LogLine, name: str, value: str, origin: str) -> None:
    value = value.rstrip("\r\n ") if "\n" not in value else value
    context.emit("run_args", line, rank=None, name=name, value=None if value == "None" else value, origin=origin)


def _items(body: str) -> tuple[list[tuple[str, str]], bool]:
    """`a=1, b=[1, 2])` as pairs, commas inside brackets and quotes left alone, and whether its bracket closes; without that the last is cut."""
    items: list[str] = []
    depth, quote, start, ends = 0, "", 0, False
    for at, sign in enumerate(body):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{<":
            depth += 1
        elif sign == ")" and depth == 0:
            items.append(body[start:at])
            ends = True
            break
        elif sign in ")]}>" and body[at - 1:at + 1] not in ("->", "=>"):
            depth = max(depth - 1, 0)
        elif sign == "," and depth == 0:
            items.append(body[start:at])
            start = at + 1
    return [(match["name"], item.strip()[match.end():]) for item in items if (match := _ITEM.match(item.strip()))], ends
