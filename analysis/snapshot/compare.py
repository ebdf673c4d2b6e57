"""Two snapshots, device by device at their peaks: what each class and each stack holds more or less.

Stacks are matched by the text of the frames that are not plumbing, innermost first, with their lines:
a stack that only moved a line in its file is another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.snapshot.stacks import NONE
from analysis.snapshot.view import Device


@dataclass(frozen=True, slots=True)
class Difference:
    """A class or stack in both snapshots, requested bytes at their peaks."""

    name: str
    category: str
    before_bytes: int
    after_bytes: int
    stack: tuple[str, ...] = ()

    @property
    def change_bytes(self) -> int:
        """After less before."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True, slots=True)
class Comparison:
    """One device beside another."""

    before_device: int
    after_device: int
    before_peak_bytes: int
    after_peak_bytes: int
    classes: tuple[Difference, ...]
    stacks: tuple[Difference, ...]


def paired(before: tuple[Device, ...], after: tuple[Device, ...]) -> list[tuple[Device, Device]]:
    """Devices of the same index; where each file has one only, those two (ranks see their device under any index)."""
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    by_index = {one.trace.device: one for one in after}
    return [(one, by_index[one.trace.device]) for one in before if one.trace.device in by_index]


def compare(before: Device, after: Device, most: int = 50) -> Comparison:
    """What changed between the two peaks, the largest change first."""
    return Comparison(before.trace.device, after.trace.device, before.peak.bytes, after.peak.bytes,
                      _by_class(before, after), _by_stack(before, after)[:most])


def _by_class(before: Device, after: Device) -> tuple[Difference, ...]:
    was, now = ({share.name: share.bytes for share in one.by_class(one.peak.event)} for one in (before, after))
    found = (Difference(name, name, was.get(name, 0), now.get(name, 0)) for name in dict.fromkeys((*was, *now)))
    return tuple(sorted(found, key=lambda one: -abs(one.change_bytes)))


def _by_stack(before: Device, after: Device) -> tuple[Difference, ...]:
    was, now = _stacks(before), _stacks(after)
    found = []
    for key in dict.fromkeys((*was, *now)):
        stack, category = key
        found.append(Difference(was.get(key, now.get(key, (NONE, 0)))[0], category, was.get(key, ("", 0))[1], now.get(key, ("", 0))[1], stack))
    return tuple(sorted((one for one in found if one.change_bytes), key=lambda one: -abs(one.change_bytes)))


def _stacks(device: Device) -> dict[tuple[tuple[str, ...], str], tuple[str, int]]:
    """Owner and bytes at the peak by stack text and class: stacks that differ in plumbing alone are one."""
    found: dict[tuple[tuple[str, ...], str], tuple[str, int]] = {}
    for row, share in device.by_stack(device.peak.event):
        key = (device.stacks.text(row), share.category)
        found[key] = (share.name, found.get(key, ("", 0))[1] + share.bytes)
    return found
