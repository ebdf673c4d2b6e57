"""Which run a file belongs to, from its path alone, so that every machine gives the same name.

1. A *token* is a part of a path that names a rank, host, local rank or attempt: `rank_3`, `rank-03`, `node0`, `host12`, `local_rank1`,
   `attempt_0`, and below an attempt or in front of a `stdout.log` a bare number (torchelastic's `attempt_0/3/stdout.log`). Files whose
   paths differ in tokens only are one *group*: one log of one run, split over its ranks. Rotation (`.1`, `.log-20260701`), compression and the
   ending do not count, nor whether it is standard output or error.
2. *Auxiliary* files (memory_stats, tokens per expert, snapshots, NCCL output, smi tables, event files, and the scripts, configurations
   and notes that lie beside a log) are no logs; they belong to the run of their folder, or of the nearest folder above that has logs. A
   trailing number of theirs is a rank.
3. A folder with one log group is one run, named after the folder as seen from the folder given (`a/b`; the given folder itself by its own
   name); with several groups each is `folder/stem`. A file given by itself is `folder/stem`, or `folder` where its stem is all token.
4. An archive stands for a folder of its name without the ending.
5. What the lake already knows wins: a known file keeps its run, and a new file of a known group joins it (see `ingest.pipeline`).

Not the start time of the log: it is known only after parsing, and rank files of one run start at different seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

_TOKEN = re.compile(
    r"(?:(?<=[^a-z0-9])|^)((?:global|local|world|task|proc)?[-_.]?"
    r"(?:rank|node|host|worker|task|proc(?:ess)?|gpu|device|pod|attempt|restart)[-_.]?\d+)(?![a-z0-9])",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
_TRAILING_NUMBER = re.compile(r"(?<=[^a-z0-9])\d+$", re.IGNORECASE)
_STREAMS = re.compile(r"(?:(?<=[^a-z0-9])|^)(?:stdout|stderr|out|err|log|logs)(?![a-z0-9])", re.IGNORECASE)
_COMPRESSED = re.compile(r"\.(?:gz|zst|xz|bz2)$", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(?:zip|tar|tgz|tbz2?|txz|tar\.(?:gz|zst|xz|bz2))$", re.IGNORECASE)
_ROTATED = re.compile(r"(?:\.\d{1,3}|(?<=\.(?:log|txt|out|err))[-.]20\d\d-?[01]\d-?[0-3]\d(?:[-_.T]?\d{2,6})?(?:\.\d{1,3})?)$", re.IGNORECASE)
_ENDING = re.compile(r"\.(?:log|txt|out|err|output|jsonl?|csv|pickle|pkl|ndjson)$", re.IGNORECASE)
_AUXILIARY = re.compile(
    r"mem(?:ory)?[-_]?stats|memory[-_]?summary|tokens?[-_]per[-_]expert|expert[-_]?load|snapshot|nccl|(?:nvidia|rocm|npu)[-_]?smi|tfevents"
    r"|probe|\.(?:pickle|pkl|csv|jsonl?|npz|npy|pt|pth)(?:\.|$)"
    r"|\.(?:py|sh|bash|slurm|sbatch|ya?ml|toml|ini|cfg|conf|env|md|rst|html?|ipynb|patch|diff|lock|png|svg|pdf)$",
    re.IGNORECASE,
)

_STEP = re.compile(r"(?:iter(?:ation)?|step)[-_]?\d+(?:_exit)?", re.IGNORECASE)
"""A folder of what was written at one step of a run (torchtitan's snapshots)."""


@dataclass(frozen=True, slots=True)
class Named:
    """How a path splits: `group` is the same for all files of one log, `tokens` tells them apart."""

    folder: str
    stem: str
    auxiliary: bool
    tokens: tuple[str, ...]

    @property
    def group(self) -> tuple[str, str, bool]:
        """Key of the group."""
        return (self.folder, "" if self.auxiliary else self.stem, self.auxiliary)


def split(path: str) -> Named:
    """Take a logical path (`/` or `!` between its parts) apart."""
    *folders, file = _parts(path)
    auxiliary = bool(_AUXILIARY.search(file))
    stem, tokens = _stem(file, auxiliary)
    streamed = not stem
    kept: list[str] = []
    for index, folder in enumerate(folders):
        below_attempt = index > 0 and folders[index - 1].lower().startswith("attempt")
        rest, found = _without_tokens(folder)
        if _NUMBER.fullmatch(folder) and (below_attempt or (streamed and index == len(folders) - 1)):
            rest, found = "", [folder]
        tokens = [*tokens, *found]
        if rest or not found:
            kept.append(rest or folder)
    return Named("/".join(kept), stem, auxiliary, tuple(sorted(_plain(token) for token in tokens)))


def same_place(one: str, other: str) -> bool:
    """Whether two paths can be copies of one file: their names do not prove different ranks, hosts or attempts."""
    first, second = split(one).tokens, split(other).tokens
    return not first or not second or first == second


def base_name(path: str) -> str:
    """The file's name without rotation, compression and ending: what a renamed log keeps."""
    return _bare(_parts(path)[-1]).lower()


def plain_name(file: str) -> str:
    """A file's name without what rotation and compression added."""
    return _ROTATED.sub("", _COMPRESSED.sub("", file))


def run_names(paths: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """The run of each absolute logical path, given with the folder it was found below (None: given by itself)."""
    found = {path: (split(path), root) for path, root in paths}
    groups: dict[str, set[str]] = {}
    for named, _ in found.values():
        if not named.auxiliary:
            groups.setdefault(named.folder, set()).add(named.stem)
    return {path: _name(named, root, groups) for path, (named, root) in found.items()}


def _name(named: Named, root: str | None, groups: dict[str, set[str]]) -> str:
    """Rule 2 and 3 of the module for one file."""
    home = split(f"{root}/x").folder if root else None
    folder = _home_of_auxiliary(named, home, groups) if named.auxiliary else named.folder
    stems = groups.get(folder, set())
    name = _seen_from(folder, home)
    if named.auxiliary:
        return f"{name}/{next(iter(stems))}" if home is None and len(stems) == 1 and next(iter(stems)) else name
    return f"{name}/{named.stem}" if named.stem and (home is None or len(stems) > 1) else name


def _home_of_auxiliary(named: Named, home: str | None, groups: dict[str, set[str]]) -> str:
    """The nearest folder, not above the given one, that holds logs; else its own, folders of auxiliary names left out."""
    folder = PurePosixPath(named.folder)
    for candidate in (folder, *folder.parents):
        if str(candidate) in groups:
            return str(candidate)
        if home is not None and str(candidate) == home:
            break
    while len(folder.parts) > 1 and str(folder) != home and (_AUXILIARY.search(folder.name) or _STEP.fullmatch(folder.name)):
        folder = folder.parent
    return str(folder)


def _seen_from(folder: str, home: str | None) -> str:
    """`folder` below `home`; by its last name where it is `home` itself or no home is given."""
    if home is not None and folder.startswith(f"{home}/"):
        return folder[len(home) + 1 :]
    return PurePosixPath(folder).name or "run"


def _parts(path: str) -> list[str]:
    """The names in a path; the root's empty name is kept, an archive's ending is not."""
    *folders, file = path.replace("\\", "/").replace("!", "!/").split("/")
    return [*(_ARCHIVE.sub("", part[:-1]) if part.endswith("!") else part for part in folders), file]


def _bare(file: str) -> str:
    return _ENDING.sub("", plain_name(file))


def _stem(file: str, auxiliary: bool) -> tuple[str, list[str]]:
    """Name without tokens, streams and endings, and the tokens."""
    rest, tokens = _without_tokens(_bare(file))
    rest = _STREAMS.sub("", rest)
    if (match := _TRAILING_NUMBER.search(rest)) and auxiliary:
        tokens, rest = [*tokens, match.group()], rest[: match.start()]
    rest = _trim(rest)
    if _NUMBER.fullmatch(rest):
        tokens, rest = [*tokens, rest], ""
    return rest, tokens


def _without_tokens(name: str) -> tuple[str, list[str]]:
    tokens = _TOKEN.findall(name)
    return (_trim(_TOKEN.sub("", name)) if tokens else name), tokens


def _trim(name: str) -> str:
    return re.sub(r"([-_. ])[-_. ]+", r"\1", name).strip("-_. ")


def _plain(token: str) -> str:
    """One spelling for `rank_3`, `Rank-03` and `rank3`."""
    letters = re.sub(r"[^a-z]", "", token.lower())
    return f"{letters}{int(re.findall(r'[0-9]+', token)[-1])}"
