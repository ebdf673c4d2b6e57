"""`hbmledger snapshot FILE`: when memory peaked, what lived then, and what the allocator did, of each device of a CUDA memory snapshot.

The file is never executed: a reader that allows no code reads it in a process of its own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.errors import OK, LedgerError

if TYPE_CHECKING:
    from analysis.snapshot.view import Device

NAME = "snapshot"
HELP = "when a CUDA memory snapshot peaked, what lived then, and what the allocator did"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("file", metavar="FILE", help="a memory snapshot: .pickle, .pickle.gz, .pickle.zst")
    parser.add_argument("--compare", metavar="FILE", help="a second snapshot: what it holds more or less at its peak, by class and by stack")
    parser.add_argument("--rank", type=int, metavar="N", help="global rank that wrote FILE (default: from the file's name)")
    parser.add_argument("--device", type=int, metavar="N", help="only this device")
    parser.add_argument("--reader", choices=("auto", "python", "compiled"), default="auto", help="which reader (default: compiled where built)")
    parser.add_argument("--perfetto", metavar="OUT", help="also write the levels by class as counters that Perfetto opens (JSON)")
    parser.add_argument("--folded", metavar="OUT", help="also write what lived at the peak as folded stacks, for a flame graph")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Answer for one file, or for two."""
    from analysis.snapshot.compare import compare, paired

    devices = _read(arguments.file, arguments)
    _export(arguments, devices)
    pairs = paired(devices, _read(arguments.compare, arguments)) if arguments.compare else []
    if arguments.compare and not pairs:
        raise LedgerError("the two files have no device in common", where=arguments.compare, todo="name one with --device")
    compared = [compare(before, after) for before, after in pairs]
    rank = arguments.rank if arguments.rank is not None else _rank_of(arguments.file)
    if arguments.format == "json":
        from analysis.snapshot.report import as_json, compared_json

        answer = as_json(devices, path=arguments.file, rank=rank)
        print(json.dumps({**answer, "compared": [compared_json(one) for one in compared]} if compared else answer, indent=1))
        return OK
    _print(arguments, devices, compared, rank)
    return OK


def _print(arguments: argparse.Namespace, devices: tuple[Device, ...], compared: list[Any], rank: int | None) -> None:
    from analysis.snapshot.text import as_text, compared_text

    name = Path(arguments.file).name
    for device in devices:
        who = f"{name}, " + (f"rank {rank}, " if rank is not None else "") + f"device {device.trace.device}"
        print(as_text(device, f"{who}: {len(device.trace.events):,} events, {device.snapshot.reader} reader"))
    for one in compared:
        print(compared_text(one, name, Path(arguments.compare).name))
    if not devices:
        print(f"{name}: neither an event nor a segment of any device")


def _export(arguments: argparse.Namespace, devices: tuple[Device, ...]) -> None:
    from analysis.snapshot.export import folded, perfetto

    for given, lines in ((arguments.perfetto, perfetto), (arguments.folded, folded)):
        if given is None:
            continue
        try:
            with open(given, "x", encoding="utf-8", errors="replace") as file:
                file.writelines(lines(devices))
        except FileExistsError:
            raise LedgerError("is there already", where=given, todo="name another file") from None
        except OSError as error:
            raise LedgerError(f"cannot be written: {error.strerror or error}", where=given, todo="name another place") from error


def _read(path: str, arguments: argparse.Namespace) -> tuple[Device, ...]:
    from analysis.snapshot.trace import from_columns
    from analysis.snapshot.view import devices
    from ingest.parsers.snapshot.reading import read_snapshot

    found = devices(from_columns(read_snapshot(path, reader=arguments.reader)))
    if arguments.device is None:
        return found
    chosen = tuple(one for one in found if one.trace.device == arguments.device)
    if not chosen:
        there = ", ".join(str(one.trace.device) for one in found) or "none"
        raise LedgerError(f"has no device {arguments.device}", where=path, todo=f"it has {there}")
    return chosen


def _rank_of(path: str) -> int | None:
    from ingest.parsers.snapshot.filenames import told

    return told(path).rank
