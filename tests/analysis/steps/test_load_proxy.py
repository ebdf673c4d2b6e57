"""Named proxies of load: losses of balance and printed sequence lengths, other numbers left alone."""

from __future__ import annotations

from analysis.database import from_rows
from analysis.steps.load_proxy import LoadProxy, load_proxies


def test_losses_of_balance_and_sequence_lengths_are_proxies_and_others_are_not() -> None:
    rows = [{"iteration": step, "losses": {"lm loss": 2.0, "load_balancing_loss": 1 + step / 10},
             "other": {"max_seqlen": str(100 * step), "note": "x"}} for step in range(1, 8)]
    found = load_proxies(from_rows({"iterations": rows}), "file", 0)
    assert found == (LoadProxy("load_balancing_loss", 7, 1.1, 1.4, 1.7, (3, 4, 5, 6, 7)),
                     LoadProxy("max_seqlen", 7, 100.0, 400.0, 700.0, (3, 4, 5, 6, 7)))


def test_a_run_without_any_has_none() -> None:
    assert load_proxies(from_rows({"iterations": [{"iteration": 1, "losses": {"lm loss": 2.0}}]}), "file", 0) == ()
