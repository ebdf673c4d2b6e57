"""Bytes that offload would move, worked out by hand: 112 GB over PCIe at 32 GB/s take 3.5 s."""

from __future__ import annotations

import pytest

from analysis.expected import RankExpectation
from analysis.plan.offload import offloads
from analysis.reconcile import Expected
from tests.analysis.test_reconcile import MODEL

GB = 10**9


def stage(pp, optimizer, activations, gradients=0):
    peak = optimizer + activations
    return RankExpectation(None, pp, None, None, None, None, 0, {"optimizer": optimizer, "gradients": gradients}, {"activations": activations},
                           optimizer, optimizer, optimizer, peak, peak, peak, "loss", ())


def expected(*rows, microbatches=8):
    return Expected({row.pp: row for row in rows}, None, {**MODEL, "pipeline_model_parallel_size": len(rows)}, microbatches)


def test_optimizer_state_moves_both_ways():
    found = {(one.what, one.link): one for one in offloads(expected(stage(0, 50 * GB, 0, gradients=12 * GB)), 7.0)}
    one = found["optimizer state", "PCIe 4"]
    assert one.moved_bytes == 112 * GB
    assert one.seconds == pytest.approx(3.5)
    assert one.share == pytest.approx(0.5)
    assert found["optimizer state", "PCIe 5"].seconds == pytest.approx(1.75)
    assert ("activations", "PCIe 4") not in found


def test_activations_of_every_micro_batch_move_out_and_back():
    """The first of four stages holds four micro-batches of 2 GB; eight a step move 2 x 8 x 2 GB."""
    rows = [stage(0, GB, 8 * GB), *(stage(pp, GB, (4 - pp) * 2 * GB) for pp in range(1, 4))]
    one = next(one for one in offloads(expected(*rows), None) if one.what == "activations")
    assert (one.stage, one.freed_bytes, one.moved_bytes, one.share) == (0, 8 * GB, 32 * GB, None)


def test_without_a_ledger_nothing_is_said():
    assert offloads(Expected(reason="no arguments"), 1.0) == ()
