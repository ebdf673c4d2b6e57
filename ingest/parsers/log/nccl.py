"""NCCL and RCCL `INFO` lines: communicators, channels, rings and trees, connections, allocations, NVLS blocks, running totals.

The shapes are those of NCCL 2.3 to 2.30 and RCCL. In a big log most lines are NCCL's, so the literals name the lines that carry a record, and the
first word of a line's body chooses the one pattern that is tried. A connection line becomes one row and is not merged with its neighbours: a
merged row would change where a log is cut or where another process writes in between. Most lines do not name their communicator: `thread`
is kept, because the lines of one thread between `Init START` and `Init COMPLETE` belong together; joining them is left to SQL, for
a row must depend on its own line alone. Warnings of failed allocations are records of `oom`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ingest.parsers.log.records import Context, LogLine

_HEAD = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,9}):(?P<thread>\d{1,9}) \[(?P<device>-?\d{1,5})\] (?:\S{1,40} \S{1,80} )?NCCL (?:INFO|TRACE) ")
_N, _P = r"(-?\d{1,9})(?!\d)", r"(0x[0-9a-f]{1,16}|[0-9a-f]{8,16})(?![0-9a-z])"
_COMM = re.compile(
    rf"(?:\[Rank \d+\] )?(?P<function>\w+ )?comm {_P} rank {_N} nranks {_N} cudaDev {_N}(?: nvmlDev {_N})? busId ([0-9a-f]+)"
    r"(?P<rest>.*?) ?- Init (?P<what>START|COMPLETE)")
_TOPOLOGY = re.compile(rf"comm {_P} rank {_N} nRanks {_N} nNodes {_N} localRanks {_N} localRank {_N}(?: MNNVL {_N})?(?!\d)")
_CHANNELS = re.compile(
    rf"{_N} coll channels, (?:{_N} collnet channels, )?(?:{_N} nvls channels, )?{_N} p2p channels, {_N} p2p channels per peer")
_VIA = re.compile(
    r"Channel (\d{1,3})(?:/(\d))? : (\d{1,6})\[\w+\] -> (\d{1,6})\[\w+\](?: \[(send|receive)\])? via (\S.*)")
_COLLNET = re.compile(r"(?:CollNet|Channel) (\d{1,3})(?:/(\d))? : (\d{1,6}) \[(send|receive)\] via (COLLNET\S+)")
_RING = re.compile(r"Channel (\d{1,3})/(\d{1,3}) :((?:\s+\d{1,6})+)\s*$")
_NEIGHBOURS = re.compile(rf"Ring (\d{{1,3}}) : {_N} -> {_N} -> {_N}(?!\d)")
_TREES = re.compile(r"Trees((?: \[\d+\] [-\d/>|]+)+)\s*$")
_TREE_RANK = re.compile(r"->(\d+)->")
_TREE = re.compile(r"Tree (\d{1,3}) : (-?\d+) -> (\d+) -> ([-\d/]+)\s*$")
_NVLS_HEADS = re.compile(r"NVLS comm (0x[0-9a-f]+) headRank (-?\d+) nHeads (\d+)(?P<rest>.*nvlsTotalSize (?P<total>\d+).*)")
_NVLS_DONE = re.compile(r"NVLS rank (\d+) \(dev (\d+)\) alloc done,(?P<rest>.*?\b(?:ucsize|size) (?P<size>\d+).*)")
_NVLS_GROUP = re.compile(r"NVLS (Creat(?:ing|ed)) Multicast group(?: (\w+))? nranks (\d+) size (\d+) on rank (\d+)")
_NVLS_SUPPORT = re.compile(r"NVLS multicast support is (not )?available on dev (\d+)(?: \(NVLS_NCHANNELS (\d+)\))?")
_ALLOC = re.compile(
    r"(?:(?P<site>\S+:\d+) (?:\((?P<function>\w+)\) )?)?(?P<what>Cuda Host Alloc|CUMEM Host Alloc|CuMem Alloc|Cuda Alloc|Cuda Calloc(?:Async)?|"
    r"Ib Alloc|Host Calloc|Mem Alloc) Size (?P<size>\d{1,18})(?P<rest>(?: \w+ \w+)*)\s*$")
_REALLOC = re.compile(r"(?:(?P<site>\S+:\d+) (?:\((?P<function>\w+)\) )?)?Mem Realloc old size (?P<old>\d{1,18}), new size (?P<size>\d{1,18})")
_TOTAL = re.compile(r"(?P<function>\w+): Memory used = (?P<size>\d{1,18}) on device = (?P<device>\d{1,5})(?!\d)")
_SHARED = re.compile(r"Allocated (?P<size>\d{1,18}) bytes of shared memory in (?P<path>\S+)")
_STACK = re.compile(r"(?P<site>\S+:\d+) memory stack (?P<what>hunk|non-hunk) malloc\((?P<size>\d{1,18})\)")
_SUSPENDED = re.compile(
    r"MemManager: rank (\d+) (suspended|resumed) (\d+) local \+ (\d+) peer entries \((?:scratch=)?(\d+)(?:, offload=(\d+), peerImport=(\d+), "
    r"cpuBackup=(\d+)| \+ (\d+) bytes)\)")
_PAIR = re.compile(r"(\w+) (\w+)")
_SPACES = {"Cuda Host Alloc": "host_pinned", "CUMEM Host Alloc": "host_cumem", "CuMem Alloc": "device", "Cuda Alloc": "device",
           "Cuda Calloc": "device", "Cuda CallocAsync": "device", "Ib Alloc": "host", "Host Calloc": "host", "Mem Alloc": "host"}

Who = dict[str, Any]


class NcclLines:
    """Rows of `nccl_communicators`, `nccl_connections` and `nccl_allocations`."""

    literals = ("NCCL INFO Channel ", "NCCL INFO CollNet ", "- Init COMPLETE", "- Init START", " nRanks ", " coll channels, ", "NCCL INFO Tree",
                "NCCL INFO Ring ", "NCCL INFO NVLS ", "Alloc Size ", "Calloc Size ", "CallocAsync Size ", "Mem Realloc ", "Memory used = ",
                "MemManager: rank ", "bytes of shared memory in ", "hunk malloc(", "P2P Chunksize set to ", "Connected all ", "Connected NVLS tree",
                "Launch mode ", "workFifoBytes ", "Init timings - ")

    def take(self, line: LogLine, context: Context) -> bool:
        """Emit the records of each NCCL line glued into this one."""
        text = line.text
        head = _HEAD.search(text)
        if head is None:
            return False
        if text.find(" NCCL INFO ", head.end()) < 0:
            return _body(text[head.end():], head, line, context)
        heads = list(_HEAD.finditer(text))
        ends = [*(one.start() for one in heads[1:]), len(text)]
        return sum(_body(text[one.end():end], one, line, context) for one, end in zip(heads, ends, strict=True)) > 0


def _body(body: str, head: re.Match[str], line: LogLine, context: Context) -> bool:
    host, pid, thread, device = head.groups()
    who = {"host": host, "pid": int(pid), "device": int(device), "thread": int(thread)}
    word = body.partition(" ")[0]
    return any(take(body, who, line, context) for take in _BY_WORD.get(word, _OTHERS))


def _via(body: str, who: Who, line: LogLine, context: Context) -> bool:
    match = _VIA.match(body)
    if match is None:
        return False
    channel, index, source, destination, direction, transport = match.groups()
    transport, _, named = transport.rstrip().partition(" comm ")
    if transport.endswith("/"):
        context.reject(line, body, "a connection line that another line cut")
        return True
    context.emit("nccl_connections", line, **who, communicator=named.partition(" ")[0] or None, channel=int(channel),
                 connection_index=None if index is None else int(index), source_rank=int(source), destination_rank=int(destination),
                 direction=direction, transport=transport)
    return True


def _ring(body: str, who: Who, line: LogLine, context: Context) -> bool:
    if match := _RING.match(body):
        order = match[3].split()
        _fact(who, line, context, "ring", ranks=len(order), other={"channel": match[1], "channels": match[2], "order": " ".join(order)})
    elif match := _NEIGHBOURS.match(body):
        _fact(who, line, context, "ring", communicator_rank=int(match[3]), other={"channel": match[1], "previous": match[2], "next": match[4]})
    return bool(match)


def _trees(body: str, who: Who, line: LogLine, context: Context) -> bool:
    if match := _TREES.match(body):
        rank = _TREE_RANK.search(match[1])
        channels = re.findall(r"\[(\d+)\]", match[1])
        _fact(who, line, context, "trees", communicator_rank=int(rank[1]) if rank else None,
              other={"channels": " ".join(channels), "trees": match[1].strip()})
    elif match := _TREE.match(body):
        _fact(who, line, context, "trees", communicator_rank=int(match[3]), other={"channel": match[1], "up": match[2], "down": match[4]})
    return bool(match)


def _collnet(body: str, who: Who, line: LogLine, context: Context) -> bool:
    match = _COLLNET.match(body)
    if match:
        ends = {"source_rank" if match[4] == "send" else "destination_rank": int(match[3])}
        context.emit("nccl_connections", line, **who, channel=int(match[1]), connection_index=int(match[2]) if match[2] else None, direction=match[4],
                     transport=match[5], **ends)
    return bool(match)


def _communicator(body: str, who: Who, line: LogLine, context: Context) -> bool:
    match = _COMM.search(body)
    if match is None:
        return False
    function, pointer, rank, ranks, device, nvml, bus, _, _ = match.groups()
    rest: dict[str, str] = dict(_PAIR.findall(match["rest"]))
    names = {"childCount": "child_count", "splitCount": "split_count"}
    other: dict[str, str] = {"cuda_device": device} | ({"nvml_device": nvml} if nvml else {}) | ({"function": function.strip()} if function else {})
    other |= {names.get(name, name): value for name, value in rest.items() if name not in ("parent", "commId")}
    _fact(who, line, context, "init" if match["what"] == "COMPLETE" else "init_started", communicator=pointer, communicator_rank=int(rank),
          ranks=int(ranks), bus_id=bus, parent=rest.get("parent"), communicator_id=rest.get("commId"), other=other)
    return True


def _topology(body: str, who: Who, line: LogLine, context: Context) -> bool:
    match = _TOPOLOGY.match(body)
    if match:
        pointer, rank, ranks, nodes, local_ranks, local_rank, mnnvl = match.groups()
        other = {"local_ranks": local_ranks, "local_rank": local_rank} | ({"mnnvl": mnnvl} if mnnvl else {})
        _fact(who, line, context, "topology", communicator=pointer, communicator_rank=int(rank), ranks=int(ranks), nodes=int(nodes), other=other)
    return bool(match)


def _channels(body: str, who: Who, line: LogLine, context: Context) -> bool:
    match = _CHANNELS.match(body)
    if match:
        collective, collnet, nvls, p2p, per_peer = (None if one is None else int(one) for one in match.groups())
        _fact(who, line, context, "channels", collective_channels=collective, collnet_channels=collnet, nvls_channels=nvls, p2p_channels=p2p,
              p2p_channels_per_peer=per_peer)
    return bool(match)


def _nvls(body: str, who: Who, line: LogLine, context: Context) -> bool:
    if match := _NVLS_HEADS.match(body):
        other = {"head_rank": match[2], "heads": match[3], **{name: value for name, value in _PAIR.findall(match["rest"]) if name != "nvlsTotalSize"}}
        _allocation(who, line, context, "nvls", match["total"], "planned", communicator=match[1], other=other)
    elif match := _NVLS_DONE.match(body):
        other = {"communicator_rank": match[1], **{name: value for name, value in _PAIR.findall(match["rest"]) if name not in ("ucsize", "size")}}
        _allocation(who | {"device": int(match[2])}, line, context, "nvls", match["size"], "alloc", other=other)
    elif match := _NVLS_GROUP.match(body):
        other = {"ranks": match[3], "communicator_rank": match[5], **({"handle": match[2]} if match[2] else {})}
        _allocation(who, line, context, "nvls", match[4], "multicast_group" if match[1] == "Created" else "multicast_group_started", other=other)
    elif match := _NVLS_SUPPORT.match(body):
        _fact(who | {"device": int(match[2])}, line, context, "nvls", nvls_channels=int(match[3]) if match[3] else None,
              other={"available": "false" if match[1] else "true"})
    return bool(match)


def _allocated(body: str, who: Who, line: LogLine, context: Context) -> bool:
    if match := _ALLOC.match(body):
        other = dict(_PAIR.findall(match["rest"])) | ({"function": match["function"]} if match["function"] else {})
        _allocation(who, line, context, _SPACES[match["what"]], match["size"], "alloc", site=_site(match["site"]), other=other or None)
    elif match := _TOTAL.match(body):
        _allocation(who | {"device": int(match["device"])}, line, context, "running_total", match["size"],
                    "free" if "Free" in match["function"] else "alloc", other={"function": match["function"]})
    elif match := _REALLOC.match(body):
        _allocation(who, line, context, "host", match["size"], "realloc", site=_site(match["site"]), other={"old_bytes": match["old"]})
    elif match := _SHARED.match(body):
        _allocation(who, line, context, "host", match["size"], "alloc", other={"shared_memory": match["path"]})
    elif match := _STACK.match(body):
        _allocation(who, line, context, "host", match["size"], "alloc", site=_site(match["site"]), other={"memory_stack": match["what"]})
    return bool(match)


def _manager(body: str, who: Who, line: LogLine, context: Context) -> bool:
    match = _SUSPENDED.match(body)
    if match:
        rank, what, local, peer, first, offload, imported, backup, second = match.groups()
        other = {"communicator_rank": rank, "local_entries": local, "peer_entries": peer, "offload_bytes": offload, "peer_import_bytes": imported,
                 "cpu_backup_bytes": backup, "peer_bytes": second}
        _allocation(who, line, context, "device", str(int(first) + int(offload or 0)), what, other={name: one for name, one in other.items() if one})
    return bool(match)


def _single(body: str, who: Who, line: LogLine, context: Context) -> bool:
    for event, name, pattern in _SINGLES:
        if match := pattern.match(body):
            _fact(who, line, context, event, other={name: match[1].strip()})
            return True
    return False


def _timings(body: str, who: Who, line: LogLine, context: Context) -> bool:
    match = re.match(r"Init timings - (\w+): rank (\d+) nranks (\d+) total ([\d.]+) \((.*)\)", body)
    if match:
        parts = {f"{name}_s": value for name, value in re.findall(r"(\w+) (\d+\.\d+)", match[5])}
        _fact(who, line, context, "init_timings", communicator_rank=int(match[2]), ranks=int(match[3]),
              other={"function": match[1], "total_s": match[4], **parts})
    return bool(match)


_SINGLES = (
    ("p2p_chunksize", "bytes", re.compile(r"P2P Chunksize set to (\d+)(?!\d)")), ("connected", "what", re.compile(r"Connected ((?:all|NVLS) .+)")),
    ("launch_mode", "mode", re.compile(r"Launch mode (\S+)")), ("work_fifo", "bytes", re.compile(r"(?:CC \w+, )?.*?workFifoBytes (\d+)(?!\d)")),
)


def _fact(who: Who, line: LogLine, context: Context, event: str, **columns: Any) -> None:
    context.emit("nccl_communicators", line, **who, event=event, **columns)


def _allocation(who: Who, line: LogLine, context: Context, space: str, size: str, event: str, **columns: Any) -> None:
    context.emit("nccl_allocations", line, **who, space=space, size_bytes=int(size), event=event, **columns)


def _site(site: str | None) -> str | None:
    """The source file within NCCL's tree, without where it was built."""
    return site if site is None else site.rpartition("/src/")[2]


Take = Callable[[str, Who, LogLine, Context], bool]
_OTHERS: tuple[Take, ...] = (_allocated, _channels, _communicator, _timings, _single)
_BY_WORD: dict[str, tuple[Take, ...]] = {
    "Channel": (_via, _ring, _collnet), "CollNet": (_collnet,), "comm": (_topology, _communicator), "Trees": (_trees,),
    "Tree": (_trees,), "Ring": (_ring,), "NVLS": (_nvls,), "MemManager:": (_manager,), "P2P": (_single,), "Connected": (_single,),
    "Launch": (_single,), "CC": (_single,), "Init": (_timings,),
}
