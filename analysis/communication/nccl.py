"""What communication holds on each rank outside PyTorch: by communicator, as an interval and an estimate, set against what was measured.

Read from NCCL's own lines (`nccl_communicators`, `nccl_connections`, `nccl_allocations`) and the environment. A process is told by artifact, host
and process number; its global rank by its prefix, its file, or its place in the communicator of all ranks. Not from device used minus reserved
alone: that number also holds the CUDA context, libraries and other processes, and names no cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from analysis.communication import rules
from analysis.communication.checks import environment_findings, settings_of
from analysis.communication.estimate import Bytes, Communicator, Settings, estimate, network_directions, pool
from analysis.communication.groups import name_of
from analysis.communication.rows import Communication, CommunicatorUse, LateCommunicator, RankCommunication
from analysis.database import asked_text, records
from analysis.rank_layout import sizes_of
from analysis.rows import Source
from analysis.theory.layout import GROUP_KINDS, ParallelSizes, groups

if TYPE_CHECKING:
    import duckdb

    from analysis.rows import Rank

Row = dict[str, Any]
Process = tuple[str, str | None, int | None]
"""Artifact, host, process number."""

_ENVIRONMENT = """
SELECT
    environment.name, environment.value, environment.origin, environment.line, environment.other,
    COALESCE(artifacts.path, environment.artifact) AS path
FROM environment LEFT JOIN artifacts ON artifacts.artifact = environment.artifact
WHERE environment.run = ? AND environment.run_index = ?
ORDER BY path, environment.line
"""
_FIRST_STEP = """
SELECT artifact, MIN(line) AS line
FROM (SELECT artifact, line FROM iterations WHERE run = $run AND run_index = $run_index
      UNION ALL SELECT artifact, line FROM rank_memory WHERE run = $run AND run_index = $run_index AND iteration >= 1)
GROUP BY artifact
"""
_SHAPE = ("nodes", "local_ranks", "collective_channels", "p2p_channels", "p2p_channels_per_peer", "p2p_chunk_bytes")
_PATHS = "SELECT artifact, path FROM artifacts WHERE run = ?"


@dataclass(slots=True)
class Use:
    """One communicator of one process, with its bytes."""

    process: Process
    line: int
    pointer: str | None
    parent: str | None
    identity: str | None
    own_rank: int | None
    shape: Communicator
    bytes: Bytes | None = None
    name: str | None = None


@dataclass(slots=True)
class _Process:
    """One process: its communicators in the order of their lines, its own allocation lines."""

    rank: int | None = None
    label: str = ""
    uses: list[Use] = field(default_factory=list)
    device_bytes: int | None = None
    host_bytes: int | None = None
    nvls_bytes: int | None = None
    total_last_bytes: int | None = None
    total_most_bytes: int | None = None


def communication(connection: duckdb.DuckDBPyConnection, run: str, run_index: int, ranks: Sequence[Rank] = (),
                  args: Mapping[str, Any] | None = None) -> Communication | None:
    """The section of one attempt, `ranks` its measured ranks, `args` its arguments; None where no artifact shows anything of it."""
    given = {"run": run, "run_index": run_index}
    environment = records(connection, _ENVIRONMENT, [run, run_index])
    sizes = sizes_of(connection, run, run_index)
    layout = sizes if isinstance(sizes, ParallelSizes) else None
    paths = {row["artifact"]: row["path"] for row in records(connection, _PATHS, [run])}
    variables = settings_of(environment)
    found = _processes(connection, given)
    deepep, hccl = _deepep(args or {}), _hccl(variables, layout)
    warnings = tuple({one.id + one.sentence: one for one in environment_findings(environment)}.values())
    if not (found or deepep or hccl or variables or warnings):
        return None
    settings = _settings(variables, found)
    _fill(found, settings, layout)
    beside = {rank.rank: rank for rank in ranks if rank.rank is not None}
    return Communication(
        ranks=tuple(_rank(key, one, settings, beside.get(-1 if one.rank is None else one.rank), deepep, hccl, paths) for key, one in
                    sorted(found.items(), key=lambda each: (each[1].rank is None, each[1].rank or 0, str(each[0])))) or _unseen(ranks, deepep, hccl),
        communicators=_by_name(found, paths), late=_late(connection, given, found, beside, paths), warnings=warnings, settings=variables,
        versions={row["name"]: row["value"] for row in environment if row["origin"] == "banner" or row["name"].endswith(" version")},
        assumptions=_assumptions(found, settings, deepep))


def _processes(connection: duckdb.DuckDBPyConnection, given: Mapping[str, Any]) -> dict[Process, _Process]:
    found: dict[Process, _Process] = defaultdict(_Process)
    for row in records(connection, asked_text("nccl_communicators"), given):
        one = found[_key(row)]
        one.rank = row["rank"] if one.rank is None else one.rank
        one.label = row["rank_label"] or one.label
        one.uses.append(_use(row, one.uses))
    _connect(found, records(connection, asked_text("nccl_connections"), given))
    for row in records(connection, asked_text("nccl_allocations"), given):
        _note_allocation(found[_key(row)], row)
    return dict(found)


def _key(row: Row) -> Process:
    return row["artifact"], row["host"], row["pid"]


def _use(row: Row, before: Iterable[Use]) -> Use:
    """A communicator; split children without an id of their own are told apart by parent, number of the split and colour."""
    parent = next((one for one in reversed(list(before)) if one.pointer == row["parent"]), None) if row["parent"] else None
    number = row["child_count"] or row["split_count"] or ""
    identity = row["communicator_id"] or (f"{parent.identity}/{number}/{row['color']}" if parent and parent.identity else None)
    channels = {name: row[name] for name in _SHAPE}
    nvls = row["nvls_channels"] if row["nvls_available"] != 0 else 0
    return Use(_key(row), row["init_line"], row["communicator"], row["parent"], identity, row["communicator_rank"],
               Communicator(row["ranks"] or 0, nvls_channels=nvls, top_level=row["parent"] is None, **channels))


def _connect(found: Mapping[Process, _Process], rows: Iterable[Row]) -> None:
    """Give each count of connections to its communicator: the one named, the one then being set up, or the latest before the line that fits."""
    counts: dict[int, dict[tuple[int, str, str], int]] = defaultdict(lambda: defaultdict(int))
    sent: dict[tuple[str, int], dict[tuple[int, str], int]] = defaultdict(lambda: defaultdict(int))
    proxied: set[int] = set()
    for row in rows:
        uses = found[_key(row)].uses if _key(row) in found else []
        at = _owner(row, uses)
        if at is not None:
            counts[id(uses[at])][row["connection_index"], row["direction"], row["transport"]] += row["connections"]
            proxied |= {id(uses[at])} if row["proxied"] else set()
            if uses[at].identity and row["transport"] in ("p2p", "p2p_read") and row["peer_rank"] is not None:
                sent[uses[at].identity or "", row["peer_rank"]][row["connection_index"], row["transport"]] += row["connections"]
    every = [use for process in found.values() for use in process.uses]
    present: dict[str, set[int | None]] = defaultdict(set)
    for use in every:
        present[use.identity or ""].add(use.own_rank)
    for use in every:
        whole = use.identity is not None and use.own_rank is not None and len(present[use.identity]) == use.shape.ranks
        use.shape = replace(use.shape, connections=dict(counts[id(use)]), proxied=id(use) in proxied,
                            received=dict(sent[use.identity or "", use.own_rank or 0]) if whole else None)


def _owner(row: Row, uses: Sequence[Use]) -> int | None:
    if row["communicator"]:
        named = [at for at, one in enumerate(uses) if one.pointer == row["communicator"]]
        return named[-1] if named else None
    if row["init_line"] is not None:
        return next((at for at, one in enumerate(uses) if one.line == row["init_line"]), None)
    fitting = [at for at, one in enumerate(uses) if one.line < row["line"] and one.own_rank == row["own_rank"]
               and one.shape.ranks > (row["highest_rank"] or 0)]
    return fitting[-1] if fitting else None


def _note_allocation(process: _Process, row: Row) -> None:
    if process.rank is None:
        process.rank = row["rank"]
    space, size = row["space"], int(row["total_bytes"] or 0)
    if space == "device" and row["event"] == "alloc":
        process.device_bytes = (process.device_bytes or 0) + size
    elif space.startswith("host"):
        process.host_bytes = (process.host_bytes or 0) + size
    elif space == "running_total":
        process.total_most_bytes = max(process.total_most_bytes or 0, row["most_bytes"])
        process.total_last_bytes = row["last_bytes"] if row["last_bytes"] is not None else process.total_last_bytes
    elif space == "nvls" and row["event"] == "alloc":
        process.nvls_bytes = (process.nvls_bytes or 0) + size
    elif space == "nvls" and row["event"] == "planned":
        for at, use in enumerate(process.uses):
            if use.pointer == row["communicator"]:
                process.uses[at].shape = replace(use.shape, nvls_block_bytes=int(row["most_bytes"]))


def _settings(variables: Mapping[str, str], found: Mapping[Process, _Process]) -> Settings:
    kinds = {kind for process in found.values() for use in process.uses for _, _, kind in use.shape.connections}
    return Settings(
        buffers=rules.buffers_of(variables), environment=variables, shows_connections=bool(kinds), read="p2p_read" in kinds and "p2p" not in kinds,
        gpu_direct="net_gdr" in kinds or "net_host" not in kinds, p2p=variables.get("NCCL_P2P_DISABLE") != "1" and (not kinds or bool(
            kinds & {"p2p", "p2p_read"})))


def _fill(found: Mapping[Process, _Process], settings: Settings, layout: ParallelSizes | None) -> None:
    """Ranks of processes, names and bytes of communicators."""
    world = max((use.shape.ranks for process in found.values() for use in process.uses), default=0)
    whole = layout.world_size if layout else world
    for process in found.values():
        for use in process.uses:
            if process.rank is None and use.shape.ranks == whole:
                process.rank = use.own_rank
    members: dict[str, set[int]] = defaultdict(set)
    for process in found.values():
        for use in process.uses:
            if use.identity and process.rank is not None:
                members[use.identity].add(process.rank)
    for process in found.values():
        for use in process.uses:
            use.name = name_of(layout, process.rank, use.shape.ranks, use.own_rank, members.get(use.identity or "", ()))
            use.bytes = estimate(use.shape, settings)


def pools(process: _Process, settings: Settings) -> tuple[int, int]:
    """(estimate, upper) of the network pools for send/recv: one a top-level communicator, shared by its split children, once a direction."""
    roots: dict[int, set[str]] = defaultdict(set)
    most = 0
    for use in process.uses:
        ways = network_directions(use.shape, settings)
        if ways:
            root = _root(use, process.uses)
            roots[id(root)] |= ways
            if use.shape.proxied:
                most += 2 * pool(root.shape, settings) * max(0, root.shape.local - 1)
    by_id = {id(use): use for use in process.uses}
    whole = sum(len(ways) * pool(by_id[root].shape, settings) for root, ways in roots.items())
    return whole, whole + most


def _root(use: Use, uses: Sequence[Use]) -> Use:
    """The top-level communicator that a split child shares resources with; itself where sharing is off."""
    seen = {id(use)}
    while use.parent:
        parent = next((one for one in uses if one.pointer == use.parent and id(one) not in seen), None)
        if parent is None:
            break
        use = parent
        seen.add(id(use))
    return use


def _rank(key: Process, one: _Process, settings: Settings, measured: Rank | None, deepep: tuple[int, int] | None, hccl: int | None,
          paths: Mapping[str, str]) -> RankCommunication:
    parts: dict[str, int] = defaultdict(int)
    sums = [0, 0, 0]
    for use in one.uses:
        if use.bytes:
            sums = [held + more for held, more in zip(sums, (use.bytes.lower_bytes, use.bytes.estimate_bytes, use.bytes.upper_bytes), strict=True)]
            for name, size in use.bytes.parts.items():
                parts[name] += size
    pooled, most = pools(one, settings)
    if pooled:
        parts["network_pools"] = pooled
    low, middle, high = sums[0], sums[1] + pooled, sums[2] + most
    if one.total_last_bytes is not None:
        low = middle = one.total_last_bytes
        high, parts = max(one.total_most_bytes or 0, middle), {"library_total": middle}
    outside = measured.outside_bytes if measured and measured.outside_source == "rank" else None
    known = middle + (deepep[0] if deepep else 0) + (hccl or 0)
    return RankCommunication(
        rank=one.rank, who=one.label or f"{key[1] or 'unnamed host'}, process {key[2]}", communicators=len(one.uses), lower_bytes=low,
        estimate_bytes=middle, upper_bytes=high, parts=dict(parts), library_total_bytes=one.total_last_bytes, allocated_bytes=one.device_bytes,
        host_bytes=one.host_bytes, nvls_printed_bytes=one.nvls_bytes, deepep_bytes=deepep[0] if deepep else None, hccl_bytes=hccl,
        outside_bytes=outside, unexplained_bytes=None if outside is None else outside - known,
        source=Source(paths.get(key[0], key[0]), one.uses[0].line if one.uses else None))


def _unseen(ranks: Sequence[Rank], deepep: tuple[int, int] | None, hccl: int | None) -> tuple[RankCommunication, ...]:
    """Measured ranks of a run whose logs show no communicator, where another library's rule says something of them."""
    known = (deepep[0] if deepep else 0) + (hccl or 0)
    return tuple(
        RankCommunication(one.rank, one.name, 0, 0, 0, 0, {}, None, None, None, None, deepep[0] if deepep else None, hccl, one.outside_bytes,
                          None if one.outside_bytes is None else one.outside_bytes - known, one.source)
        for one in ranks if known and one.rank is not None)


def _by_name(found: Mapping[Process, _Process], paths: Mapping[str, str]) -> tuple[CommunicatorUse, ...]:
    """Communicators of one name and size together, those that hold most first."""
    alike: dict[tuple[str | None, int], dict[Process, list[Use]]] = defaultdict(lambda: defaultdict(list))
    for key, process in found.items():
        for use in process.uses:
            alike[use.name, use.shape.ranks][key].append(use)
    rows = []
    for (name, ranks), of_process in alike.items():
        key, uses = max(of_process.items(), key=lambda each: sum(use.bytes.estimate_bytes for use in each[1] if use.bytes))
        held = [use.bytes for use in uses if use.bytes]
        first = uses[0]
        rows.append(CommunicatorUse(
            name, ranks, len(of_process), max(map(len, of_process.values())), found[key].rank, sum(one.lower_bytes for one in held),
            sum(one.estimate_bytes for one in held), sum(one.upper_bytes for one in held), _summed(one.parts for one in held),
            _summed(one.protocols for one in held), first.shape.collective_channels, first.shape.nodes,
            Source(paths.get(key[0], key[0]), first.line)))
    return tuple(sorted(rows, key=lambda one: (-one.estimate_bytes, -one.upper_bytes, one.name or "", one.ranks)))


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    whole: dict[str, int] = defaultdict(int)
    for one in parts:
        for name, size in one.items():
            whole[name] += size
    return dict(whole)


def _late(connection: duckdb.DuckDBPyConnection, given: Mapping[str, Any], found: Mapping[Process, _Process], beside: Mapping[int, Rank],
          paths: Mapping[str, str]) -> tuple[LateCommunicator, ...]:
    """Communicators whose set-up stands below the first training step of the same artifact."""
    first = {row["artifact"]: row["line"] for row in records(connection, _FIRST_STEP, given) if row["line"] is not None}
    rows = []
    for key, process in found.items():
        for use in process.uses:
            if key[0] in first and use.line > first[key[0]] and use.bytes:
                measured = beside.get(process.rank) if process.rank is not None else None
                rows.append(LateCommunicator(process.rank, use.name, use.shape.ranks, use.bytes.estimate_bytes, use.bytes.upper_bytes,
                                             measured.soft_headroom_bytes if measured else None, Source(paths.get(key[0], key[0]), use.line)))
    return tuple(sorted(rows, key=lambda one: -one.upper_bytes))


def _deepep(args: Mapping[str, Any]) -> tuple[int, int] | None:
    """(least, most) of DeepEP's buffers where the arguments choose its dispatcher."""
    def number(name: str, default: int) -> int:
        text = str(args.get(name))
        return int(text) if text.isdigit() else default

    flex = str(args.get("moe_token_dispatcher_type")) == "flex"
    backend = str(args.get("moe_flex_dispatcher_backend", "deepep"))
    chosen = str(args.get("moe_enable_deepep")) == "True" or (flex and backend in ("deepep", "None"))
    hidden, parallel = number("hidden_size", 0), number("expert_model_parallel_size", 1)
    return rules.deepep_bytes(hidden, parallel, number("moe_deepep_num_sms", 20)) if chosen and hidden and parallel > 1 else None


def _hccl(variables: Mapping[str, str], layout: ParallelSizes | None) -> int | None:
    """HCCL by its rule: the variables show that it is in use, the run's sizes how many groups of several ranks a rank is in."""
    if layout is None or not any(name.startswith(("HCCL_", "P2P_HCCL_")) for name in variables):
        return None
    kinds = [kind for kind in GROUP_KINDS if not kind.endswith("independent") and kind != "dp_independent_ep"]
    several = {tuple(group) for kind in kinds for group in groups(kind, layout) if 0 in group and len(group) > 1}
    return rules.hccl_bytes(len(several) + 1, variables)


def _assumptions(found: Mapping[Process, _Process], settings: Settings, deepep: tuple[int, int] | None) -> tuple[str, ...]:
    said = []
    if found and settings.shows_connections:
        said.append("connections are those printed; where the logs of all its ranks are not there, a rank is taken to receive over P2P as often "
                    "as it sends, less what it receives over the network")
        if settings.lazy:
            said.append("a communicator without printed connections holds nothing yet: NCCL connects at first use")
    elif found:
        said.append("the log shows no connections: one ring, and between nodes a tree, on every channel are assumed connected")
    if any(process.total_last_bytes is not None for process in found.values()):
        said.append("RCCL's own running total is the estimate; its lines by connection are not counted")
    if any(process.device_bytes is not None for process in found.values()):
        said.append("frees are not logged: sums of ALLOC lines are upper bounds of what those lines show, and host lines are not in them")
    if any(use.shape.proxied for process in found.values() for use in process.uses):
        said.append("with PXN the send pools of other local ranks may lie on this rank: counted in the upper bound only")
    if deepep and deepep[0] != deepep[1]:
        said.append(f"DeepEP's buffers are taken at their least; at most {deepep[1]:,} bytes")
    return tuple(said)
