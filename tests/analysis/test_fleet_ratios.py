"""Measured over theory by family, as quantiles: the value at rank p n, rounded up, worked out by hand for ten and for seventy stages."""

from __future__ import annotations

import duckdb

from analysis.database import asked_text, records


def spread(ratios, stage=0, stages=4):
    """The answer on attempts of one stage each; odd ones are not chosen."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE fleet_ratio (cluster VARCHAR, run VARCHAR, run_index INT, stage INT, stages INT, family VARCHAR, "
                       "over_printed_ratio DOUBLE, over_expected_ratio DOUBLE)")
    connection.execute("CREATE TABLE chosen (cluster VARCHAR, run VARCHAR, run_index INT)")
    for at, ratio in enumerate(ratios):
        connection.execute("INSERT INTO fleet_ratio VALUES ('c', ?, 0, ?, ?, NULL, ?, NULL)", [f"r{at}", stage, stages, ratio])
        connection.execute("INSERT INTO chosen VALUES ('c', ?, 0)", [f"r{at}"])
    connection.execute("INSERT INTO fleet_ratio VALUES ('c', 'not chosen', 0, 0, 4, NULL, 9, 9)")
    return records(connection, asked_text("fleet_ratios"))


def test_quantiles_of_ten_stages():
    assert spread([0.5, 0.1, 0.9, 0.3, 0.7, 1.0, 0.2, 0.8, 0.4, 0.6]) == [{
        "family": "not told", "against": "over printed", "stages": 10, "least": 0.1, "low": 0.1, "quarter": 0.3, "middle": 0.5,
        "three_quarters": 0.8, "high": 0.9, "most": 1.0}]


def test_a_tenth_of_seventy_is_seven():
    (found,) = spread([at / 100 for at in range(1, 71)])
    assert (found["low"], found["quarter"], found["middle"], found["three_quarters"], found["high"]) == (0.07, 0.18, 0.35, 0.53, 0.63)


def test_one_stage_is_all_of_them():
    (found,) = spread([1.25])
    assert {value for name, value in found.items() if name not in ("family", "against", "stages")} == {1.25}


def test_records_that_name_no_rank_are_left_out_where_others_are_placed():
    assert spread([1.25], stage=None) == []
    assert len(spread([1.25], stage=None, stages=None)) == 1
