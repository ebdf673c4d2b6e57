"""Our own ledger: what each rank should hold, class by class. See `analysis.expected.expect`."""

from analysis.expected.expect import expect, expect_stages
from analysis.expected.rank import RankExpectation

__all__ = ["RankExpectation", "expect", "expect_stages"]
