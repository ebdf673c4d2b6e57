"""Argument dumps, launch command lines and config reprs as `run_args`: values as printed, None as null.

A dump has 24 dashes around any title since 2020-12, fewer before; names of 48 characters and more have no dots; a value may be empty or
run over several lines. Pastes lose the header or the footer, so a bare `name ..... value` line counts too.
"""

from __future__ import annotations

import re

from ingest.parsers.base import Row
from ingest.parsers.log.records import Context, Fed, LogLine

_HEADER = re.compile(r"^[> ]*-{12,}\s*(?P<title>[A-Za-z][^-]*?)\s*-{12,}\s*$")
_FOOTER = re.compile(r"-{8,}\s*end of (?P<title>[^-]+?)\s*-{8,}")
_DOTTED = re.compile(r"^\s*(?:> )?\s*(?P<name>[A-Za-z_]\w*) (?P<dots>\.{3,})(?: (?P<value>.*))?$")
_LONG = re.compile(r"^(?:> )? {0,2}(?P<name>[A-Za-z_]\w{30,})  (?P<value>.*)$")
_TYPED = re.compile(r"^\s*(?P<name>[A-Za-z_]\w*)\s+: (?P<value>.*) \((?P<type>NoneType|bool|int|float|str|list|dict|tuple|dtype|[\w.]+)\)\s*$")
_CONFIG = re.compile(r"(?P<what>DistributedDataParallelConfig|OptimizerConfig)\((?P<body>.*)\)")
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
    r"\[Rank \S+\] \(|iteration\s+\d+/|NCCL (?:INFO|WARN)|^\S+: |^\[|^[-=]{12,}|^(?:using|setting|building|time|WARNING|INFO)\b|^> |^ > ")
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
        header = _HEADER.search(line.text)
        if header and "end of" not in header["title"] and "validation" not in header["title"]:
            context.open(Dump(header["title"]))
            return True
        if match := _DOTTED.match(line.text):
            if ": (" not in line.text and len(match["name"]) + len(match["dots"]) >= 31:
                _emit(context, line, match["name"], match["value"] or "", "dump")
                return True
        elif line.prefix.get("launcher") == "primus" and (match := _TYPED.match(line.text)):
            _emit(context, line, match["name"], "None" if match["type"] == "NoneType" else match["value"], "dump")
            return True
        return False


class Dump:
    """An open dump: its lines until the footer, or until something that is no argument."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.arguments: list[tuple[LogLine, str, str]] = []
        self.lines = self.strange = 0
        self.who: tuple[int | None, str | None] | None = None

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Take arguments and what continues a value; leave the rest; close at the footer."""
        self.lines += 1
        if _FOOTER.search(line.text):
            self.finish(context)
            return Fed.CLOSED
        if match := _DOTTED.match(line.text) or _LONG.match(line.text):
            self.arguments.append((line, match["name"], match["value"] or ""))
            self.strange = 0
            return Fed.TAKEN
        self.strange += 1
        lost = self.strange > 40 or self.lines > LONGEST_DUMP or (not self.arguments and self.strange > 3)
        if lost or _HEADER.search(line.text):
            self.finish(context)
            return Fed.CLOSED_BEFORE
        return Fed.FOREIGN if not self._continues(line) else Fed.TAKEN

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
                sizes["params_dtype"] = value
        if sizes:
            context.facts["dump_seen"] = True
            context.emit("runs", self.arguments[0][0], rank=None, **sizes)


class ConfigReprs:
    """DDP and optimizer dataclass reprs: what Megatron resolved, after its own mutations."""

    literals = ("DistributedDataParallelConfig(", "OptimizerConfig(")

    def take(self, line: LogLine, context: Context) -> bool:
        """One argument a field; nested brackets stay one value."""
        match = _CONFIG.search(line.text)
        if not match:
            return False
        origin = "ddp_config" if match["what"].startswith("Dist") else "optimizer_config"
        for name, value in _items(match["body"]):
            _emit(context, line, name, value, origin)
        return True


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


def _items(body: str) -> list[tuple[str, str]]:
    """`a=1, b=[1, 2]` as pairs, commas inside brackets and quotes left alone."""
    items: list[str] = []
    depth, quote, start = 0, "", 0
    for at, sign in enumerate(body):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{<":
            depth += 1
        elif sign in ")]}>":
            depth -= 1
        elif sign == "," and depth == 0:
            items.append(body[start:at])
            start = at + 1
    pairs = [(match["name"], item.strip()[match.end():]) for item in (*items, body[start:]) if (match := _ITEM.match(item.strip()))]
    return pairs
