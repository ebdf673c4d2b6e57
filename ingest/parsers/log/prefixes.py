"""What launchers put before a line, taken off in any order: torchrun, srun, pdsh, MPI, Ray, Kubernetes, loggers, syslog, CI.

Only what is surely a prefix is taken; recognisers search inside the text, so a prefix left standing costs nothing, while a payload
eaten loses a record. A GLOBAL rank is believed only where the prefix means one (`[rank3]:`, `[rank-3/8]`, `[1,3]<stdout>:`); torchrun's
`[default3]:` is a local rank and srun's `3:` a task, kept as labels.
"""

from __future__ import annotations

import re
from datetime import datetime

from ingest.parsers.log.records import LogLine

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\ufeff")
STAMP = r"\d{4}[-/]\d\d[-/]\d\d[T_ -]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?"
_CLOCK = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
"""A time without what `moment` needs is no column; it is named so that the compiled scanner learns no prefix that holds one."""
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|[DIWEF])"
PREFIXES: tuple[tuple[str, re.Pattern[str]], ...] = tuple((name, re.compile(pattern)) for name, pattern in (
    ("torchrun", r"\s*\[(?!rank\d)(?P<role>[A-Za-z_]+)(?P<local>\d+)\]:\s?"),
    ("mpi", rf"\s*(?P<clock>{_CLOCK})?\[(?:[\w.-]+@)?\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[\w.-]+)?\]<std(?:out|err)>:\s?"),
    ("primus", r"\s*\[\d{8} \d\d:\d\d:\d\d\]\[rank-(?P<rank>\d+)/(?P<world>\d+)\]\[\w+ *\] *(?:\[-*[\w.]+:\d+\] *:? ?)?"),
    ("ray", r"\s*\((?P<actor>[A-Za-z_][\w.]*) pid=(?P<pid>\d+)(?:, ip=(?P<host>[\w.:-]+))?\)\s?"),
    ("rank_word", r"\s*\[?(?:Rank|rank)[ _-]?(?P<rank>\d{1,7})(?:\]:?|:)\s+(?=\S)(?!\(|\[|\|)"),
    ("kubectl", r"\s*\[pod/(?P<pod>[^/\]]+)/(?P<container>[^\]]+)\]\s?"),
    ("host_local", r"\s*\[(?P<host>[A-Za-z][\w.-]*):(?P<local>\d+)\]:\s?"),
    ("stern", r"\s*\[?(?P<pod>[a-z0-9]+(?:-[a-z0-9]+)+) (?P<container>[a-z][a-z0-9-]*)\]\s(?=\S)"),
    ("compose", r"(?P<host>[a-z][a-z0-9_.]+(?:-[a-z0-9_.]+)*[-_]\d+) +\| (?!\s*\|)"),
    ("host_word", r"\s*\[(?P<host>[A-Za-z][\w-]*\d[\w.-]*)\]:\s"),
    ("stamp_actor", rf"\s*\[(?P<at>{STAMP}) (?P<actor>[\w-]+)\]\s?"),
    ("module", r"\s*[\w/]+\.py:\d+ - "),
    ("logger", r"\s*(?:DEBUG|INFO|WARNING|ERROR):[\w.]+:"),
    ("logging", rf"\s*\[(?P<at>{STAMP})\] ?\[{_LEVEL} *\] ?(?:\[(?!\S*:see_mem)[\w./-]+(?::\d+)?(?::\w+)?\]:? ?)?"),
    ("nemo", rf"\s*\[NeMo [IWED] (?P<at>{STAMP}) [\w.]+:\d+\]\s?"),
    ("stamp_bracket", rf"\s*\[(?P<at>{STAMP})\]:?\s+(?=\S)(?!iteration\s)"),
    ("level_bracket", rf"\s*\[{_LEVEL}(?::(?P<logger>\w+))?\]:?\s(?!\d{{4}}-)"),
    ("python", rf"\s*(?P<at>{STAMP})\s+(?:- )?(?:[\w.]+ - )?{_LEVEL}(?: -|:)? (?:\[[\w./-]+:\d+\]:? ?)?"),
    ("stamp_bare", rf"\s*(?P<at>{STAMP})\s(?=[A-Za-z\[(]|-{{12}}|  [A-Za-z_])"),
    ("loguru", rf"\s*(?P<at>{STAMP}) \| \w+ *\| [\w.<>]+:[\w.<>]+:\d+ - "),
    ("mindspeed", rf"\s*(?:DEBUG|INFO|WARNING|ERROR) \[(?P<at>{STAMP})\] >>\s"),
    ("stamp", r"\s*(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))\s"),
    ("glog", r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [\w./-]+:\d+\] "),
    ("torchx", r"(?P<role>[A-Za-z][\w-]*)/(?P<replica>\d+) (?=\[)"),
    ("comment", r"\s*# (?=\[)"),
    ("task", r"\s{0,6}(?P<task>\d{1,6}):\s"),
    ("pdsh", r"(?P<host>(?:[a-z][a-z0-9]*(?:-[a-z0-9]+)*-[a-z]*\d+|(?:c?node|host|gpu|worker|dgx|compute|cn|nid|gn|srv)[a-z]*\d+)(?:\.[\w.-]+)?): "
             r"(?=\S| )"),
    ("pdsh_other", r"(?!E[A-Z]\d{4}:)(?P<host>[A-Za-z][\w-]*\d[\w.-]*): "
                   r"(?=[\[ ]|-{12}|\d{1,6}: |torch\.|Traceback|  File|RuntimeError|after \d|iteration )"),
    ("pdsh_ip", r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}): "),
))
FURTHER: tuple[tuple[str, re.Pattern[str]], ...] = tuple((name, re.compile(pattern)) for name, pattern in (
    ("rank_equals", r"\s*\[(?:(?P<host>[A-Za-z][\w.-]*):rank=?|rank=)(?P<rank>\d{1,7})\]:?\s?"),
    ("task_bracket", r"\s*\[(?P<task>\d{1,6})\](?::\s?|\s(?!\s*(?:NVIDIA|Tesla|GeForce|AMD|NCCL)\b))"),
    ("worker", r"\s*(?P<role>worker|trainer|node|task|replica|proc|process|gpu)\[(?P<task>\d{1,6})\]:\s?"),
    ("mpi_clock", rf"(?P<clock>{_CLOCK})\s?<std(?:out|err)>:\s?"),
    ("syslog", r"(?:<\d{1,3}>)?(?P<clock>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?) (?:(?P<host>[\w.-]+) [\w./@-]+\[\d+\]: ?)?"),
    ("syslog_5424", rf"<\d{{1,3}}>1 (?P<at>{STAMP}) (?P<host>\S+) \S+ \S+ \S+ (?:-|\[[^\]]*\]) ?"),
    ("github", rf"[^\t]{{1,80}}\t[^\t]{{1,80}}\t(?P<at>{STAMP})\s"),
    ("gitlab", r"\d\d[OE] "),
    ("vllm", rf"{_LEVEL} (?P<clock>\d\d-\d\d \d\d:\d\d:\d\d) \[[\w./-]+:\d+\] "),
    ("transformers", rf"\[{_LEVEL}\|[\w./-]+:\d+\] (?P<at>{STAMP}) >> "),
))
"""Rarer ones, tried where `_MAY_BE_FURTHER` finds their beginning: a line without any prefix is not to be searched for each."""
_MAY_BE_FURTHER = re.compile(
    r"\s*(?:\[(?:\d|rank=|[A-Za-z][\w.-]*:rank|[A-Z]+\|)|<\d|[A-Z][a-z]{2} |[A-Z]+ \d\d-|\d\d[OE] |[a-z]+\[\d)|[^\t]{1,80}\t[^\t]{1,80}\t\d{4}-")
_ALL = (*PREFIXES, *FURTHER)
LONGEST_NUMBER = 4_000
"""Digits that a number has at most: Python makes no integer of more, and nothing prints as many."""
_ENDLESS = re.compile(rf"\d{{{LONGEST_NUMBER},}}")
RANK = re.compile(r"\s*\[rank(?P<rank>\d+)\]:\s?")


def log_line(text: str, number: int, offset: int) -> LogLine:
    """The payload of a line and what its prefixes say."""
    text = ANSI.sub("", text) if "\x1b" in text or "\ufeff" in text else text
    if len(text) > LONGEST_NUMBER:
        text = _ENDLESS.sub("?", text)
    line = LogLine(text, number, offset)
    found = True
    while found:
        found = False
        if match := RANK.match(line.text):
            line.rank = int(match["rank"])
            found = True
        else:
            for name, pattern in _ALL if _MAY_BE_FURTHER.match(line.text) else PREFIXES:
                if (match := pattern.match(line.text)) and match.end():
                    _note(line, name, match)
                    found = True
                    break
        if found and match:
            line.text = line.text[match.end():]
    if line.rank is None and line.rank_label is None:
        if "rank" in line.prefix.get("actor", ""):
            line.rank_label = line.prefix["actor"]
        for key, word in (("task", "task"), ("local", "local")):
            if key in line.prefix:
                line.rank_label = f"{word} {line.prefix[key]}"
    return line


def _note(line: LogLine, name: str, match: re.Match[str]) -> None:
    line.prefix.setdefault("launcher", name)
    for key, value in match.groupdict().items():
        if value is None:
            continue
        if key == "rank":
            line.rank = int(value)
        elif key == "host":
            line.host = value
        elif key == "at":
            line.at = moment(value)
        else:
            line.prefix[key] = value


def moment(text: str) -> datetime | None:
    """A printed time as the log's own clock; None where it is no time."""
    text = text.replace("/", "-").replace("_", " ").replace(",", ".").rstrip("Z")
    if re.match(r"\d{4}-\d\d-\d\d-", text):
        text = f"{text[:10]} {text[11:]}"
    text = re.sub(r"(\.\d{6})\d+", r"\1", text)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None
