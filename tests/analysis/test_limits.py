"""Margin, chances, and capacities given by people."""

from __future__ import annotations

import pytest

from analysis.capacity import capacity_of_device, given_capacity
from analysis.limits import margin, wilson
from analysis.verdict import size_text
from ingest.errors import LedgerError

GIB = 2**30


def test_near_begins_at_2_gib_or_3_percent():
    assert (margin(40 * GIB), margin(100 * GIB)) == (2 * GIB, 3 * GIB)


def test_chances():
    assert wilson(0, 100) == (0.0, pytest.approx(0.0295, abs=1e-4))
    assert wilson(5, 10) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))
    assert wilson(10, 10)[1] == pytest.approx(1.0)


@pytest.mark.parametrize(("text", "size"), [
    ("80GiB", 80 * GIB), ("79.2 GiB", int(79.2 * GIB)), ("80GB", 80 * 10**9), ("80 g", 80 * 10**9), ("85899345920", 80 * GIB), ("81920MiB", 80 * GIB),
    ("H100-80", int(79.2 * GIB)), ("MI300X", 192 * GIB), ("NVIDIA H200", int(139.8 * GIB)),
])
def test_capacities_people_give(text, size):
    assert given_capacity(text).capacity_bytes == size


@pytest.mark.parametrize("text", ["", "80", "H100", "lots", "-80GiB", "80GiBs", "nan"])
def test_a_capacity_that_says_nothing_is_refused(text):
    with pytest.raises(LedgerError, match=r"79\.2GiB"):
        given_capacity(text)


@pytest.mark.parametrize(("name", "source"), [
    ("NVIDIA A100-SXM4-80GB", "A100-80"), ("A100-SXM4-40GB", "A100-40"), ("NVIDIA H100 80GB HBM3", "H100-80"), ("NVIDIA GH200 480GB", "GH200"),
    ("AMD Instinct MI300X", "MI300X"), ("Ascend 910B2", None), ("NVIDIA A100", None), ("Tesla V100-SXM2-32GB", None), ("NVIDIA B200", "B200"),
])
def test_device_names(name, source):
    found = capacity_of_device(name)
    assert (found.source if found else None) == (f"usual for {source}" if source else None)


def test_sizes_for_people():
    assert [size_text(size) for size in (None, 0, 512, 3 * 2**20, int(1.94 * GIB), int(79.2 * GIB), 3 * 2**40)] == [
        "-", "0 B", "512 B", "3.00 MiB", "1.94 GiB", "79.2 GiB", "3.00 TiB"]
