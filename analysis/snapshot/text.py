"""A snapshot for a terminal of 100 columns: the peak and what lived then first, then what the file cannot tell, then the allocator."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.report.lines import clean, wrapped
from analysis.snapshot.classes import ALL_RULES, main_stream
from analysis.snapshot.compare import Comparison
from analysis.snapshot.history import COMPLETE
from analysis.snapshot.report import irregularities
from analysis.snapshot.view import Device
from analysis.verdict import size_text

GIB = 2**30
BAR, LISTED = 28, 10
_EVIDENCE = {rule.name: rule.evidence for rule in ALL_RULES}


def as_text(device: Device, title: str) -> str:
    """One device."""
    sections = (_peak, _classes, _unknown, _stacks, _before, _allocator, _risers, _ooms, _long_lived, _irregular)
    blocks = ["\n".join(lines) for section in sections if (lines := list(section(device)))]
    return clean("\n\n".join((title, *blocks))) + "\n"


def compared_text(found: Comparison, before: str, after: str) -> str:
    """A comparison of two peaks."""
    change = _signed(found.after_peak_bytes - found.before_peak_bytes)
    lines = [f"Compared at the peaks: {before} device {found.before_device} -> {after} device {found.after_device}",
             f"  {size_text(found.before_peak_bytes)} -> {size_text(found.after_peak_bytes)}, {change}", ""]
    lines += [f"  {one.name:<18}{_gib(one.before_bytes)} -> {_gib(one.after_bytes)} GiB  {_signed(one.change_bytes):>12}" for one in found.classes]
    if found.stacks:
        lines += ["", "  Stacks that changed most"]
    for one in found.stacks[:LISTED]:
        lines += wrapped(f"{_signed(one.change_bytes):>12}  {one.category:<16}{one.name}", "  ", " " * 32)
    return clean("\n".join(lines)) + "\n"


def _peak(device: Device) -> Iterator[str]:
    event, levels, count = device.peak.event, device.levels, len(device.trace.events)
    moment = device.moment(event)
    yield f"Peak  {size_text(device.peak.bytes)} requested ({device.peak.bytes:,} bytes)"
    low, high = int(levels.low.max()), int(levels.high.max())
    yield f"      rounded by the allocator: {size_text(low)}" + ("" if low == high else f" to {size_text(high)}") + \
        f"; reserved then {size_text(int(levels.reserved[event + 1]))}, at most {size_text(int(levels.reserved.max()))}"
    when = "before the first event" if event < 0 else f"after event {event:,} of {count:,}"
    yield from wrapped(f"{when}, phase: {moment.phase}" + (f" ({moment.evidence})" if moment.evidence else ""), "      ", "      ")
    if moment.annotations:
        yield from wrapped(f"inside {', '.join(moment.annotations)}", "      ", "      ")
    yield f"End   {size_text(int(levels.requested[-1]))} requested, {size_text(int(levels.reserved[-1]))} reserved"


def _classes(device: Device) -> Iterator[str]:
    shares = device.by_class(device.peak.event)
    yield "What lived at the peak"
    for share in shares:
        ratio = share.bytes / max(device.peak.bytes, 1)
        bar = "█" * round(BAR * min(max(ratio, 0.0), 1.0))
        blocks = f"{share.blocks:,} block{'s' * (share.blocks != 1)}"
        yield f"  {share.name.replace('_', ' '):<18}{_gib(share.bytes)} GiB {ratio:>7.1%}  {bar:<{BAR}}  {blocks}"


def _unknown(device: Device) -> Iterator[str]:
    unknown = [share for share in device.by_rule(device.peak.event) if share.category == "unknown" and share.bytes]
    if unknown:
        yield "Unknown, and why"
    for share in unknown:
        ratio = share.bytes / max(device.peak.bytes, 1)
        yield from wrapped(f"{size_text(share.bytes):>12} {ratio:>7.1%}  {share.name}: {_EVIDENCE[share.name]}", "", " " * 22)


def _stacks(device: Device) -> Iterator[str]:
    rows = [(row, share) for row, share in device.by_stack(device.peak.event, LISTED) if share.bytes]
    if rows:
        yield "By stack, at the peak"
    for _, share in rows:
        yield from wrapped(f"{size_text(share.bytes):>12}  {share.category.replace('_', ' '):<16}{share.blocks:>6,} x  {share.name}", "", " " * 14)


def _before(device: Device) -> Iterator[str]:
    known = device.history
    yield "Before the trace"
    yield from wrapped(f"{known.began}: {known.evidence}", "  ", "  ")
    if known.began != COMPLETE:
        yield from wrapped(f"{size_text(known.before_bytes)} in {known.before_blocks:,} blocks predate it; {size_text(known.kept_bytes)} of them in "
                           f"{known.kept_blocks:,} blocks are still there at the end", "  ", "  ")


def _allocator(device: Device) -> Iterator[str]:
    pools, main = device.layout.pools(), main_stream(device.trace)
    if not pools:
        return
    yield "Allocator at the end, GiB"
    yield f"  {'stream and pool':<30}{'reserved':>9}{'active':>9}{'pending':>9}{'whole':>9}{'split':>9}{'rounding':>9}{'largest':>9}"
    for pool in pools[:LISTED]:
        name = f"{'main' if pool.stream == main else hex(pool.stream & 2**64 - 1)} {pool.kind}" + (f" pool {pool.pool}" if pool.private else "")
        figures = (pool.reserved_bytes, pool.allocated_bytes, pool.pending_bytes, pool.whole_free_bytes, pool.split_free_bytes, pool.rounding_bytes,
                   pool.largest_free_bytes)
        yield f"  {name + (' expandable' if pool.expandable else ''):<30}" + "".join(f"{size / GIB:>9.2f}" for size in figures)
    yield "  whole: free segments, which can go back to the device; split: free pieces, which cannot;"
    yield "  largest: the largest block obtainable now"


def _risers(device: Device) -> Iterator[str]:
    found = device.risers
    if not found:
        return
    kinds: dict[str, int] = {}
    for one in found:
        kinds[one.kind] = kinds.get(one.kind, 0) + one.rise_bytes
    told = ", ".join(f"{size_text(size)} {kind}" for kind, size in sorted(kinds.items(), key=lambda one: -one[1]))
    times = "once" if len(found) == 1 else f"{len(found):,} times"
    yield from wrapped(f"Reserved rose {times} to a new maximum: {told}", "", "  ")
    for one in sorted(found, key=lambda one: -one.rise_bytes)[:LISTED // 2]:
        free = f"{size_text(one.free_low_bytes)} to {size_text(one.free_high_bytes)}"
        free = size_text(one.free_low_bytes) if one.free_low_bytes == one.free_high_bytes else free
        yield from wrapped(f"{'+' + size_text(one.rise_bytes):>12}  event {one.event:,}: {one.kind}, for {size_text(one.request_bytes)} with "
                           f"{free} free on its stream; {device.stacks.owner(one.stack)}", "", " " * 14)


def _ooms(device: Device) -> Iterator[str]:
    for one in device.ooms:
        yield f"Out of memory at event {one.event:,}: {size_text(one.request_bytes)} asked, device had {size_text(one.device_free_bytes)} free"
        yield from wrapped(f"case {one.verdict}: {one.because}", "  ", "  ")
        yield from wrapped(f"reserved {size_text(one.reserved_bytes)}, active {size_text(one.active_bytes)}; free in whole segments "
                           f"{size_text(one.own_whole_free_bytes)}, in pieces {size_text(one.own_split_free_bytes)} (largest "
                           f"{size_text(one.largest_free_bytes)}), on other streams {size_text(one.other_streams_free_bytes)}, in private pools "
                           f"{size_text(one.private_free_bytes)}, pending {size_text(one.pending_bytes)}", "  ", "  ")
        yield from wrapped(device.stacks.owner(one.stack), "  ", "  ")


def _long_lived(device: Device) -> Iterator[str]:
    found = [one for one in device.long_lived if one.bytes >= 2**20][:LISTED // 2]
    if found:
        yield "Alive longer than their class"
    for one in found:
        born = "before the trace" if one.birth is None else f"event {one.birth:,}"
        freed = "never freed" if one.last_free is None else f"freed at {one.last_free:,}"
        what = f"{size_text(one.bytes):>12}  {one.category.replace('_', ' '):<16}{one.blocks:>6,} x  {device.stacks.owner(one.stack)}"
        yield from wrapped(f"{what}; born {born}, {freed}; {one.why}", "", " " * 14)


def _irregular(device: Device) -> Iterator[str]:
    found = irregularities(device)
    if found:
        yield "Irregular in the trace"
        yield from wrapped(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.items()), "  ", "  ")


def _gib(size: int) -> str:
    return f"{size / GIB:>9.3f}"


def _signed(size: int) -> str:
    return ("+" if size >= 0 else "-") + size_text(abs(size))
