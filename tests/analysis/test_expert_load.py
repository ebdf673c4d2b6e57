"""Load of ranks in bytes: the sample's planted truth, doubled and merged lists, what cannot be decided, unknown steps."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from analysis.database import connect, from_rows, records
from analysis.steps.expert_load import Rule, rule
from ingest.lake import Lake
from ingest.parsers.tokens_per_expert import TOKENS_PER_EXPERT
from ingest.pipeline import ingest
from sample_data import moe

SAMPLE = Path(moe.__file__).parent / "moe_16ranks"
WIDTHS = {"hidden_size": 8, "moe_ffn_hidden_size": 4, "swiglu": True, "pipeline_model_parallel_size": 2, "world_size": 2,
          "tensor_model_parallel_size": 1}
SAVED, DISPATCH = 2 * 8 + 6 * 4, 6 * 8


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Any:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    ingest([SAMPLE], lake)
    return connect(lake)


def test_the_load_of_the_sample_run_is_what_was_planted(sample: Any) -> None:
    found = {(row["rank"], row["iteration"]): (row["load_bytes"], row["recorded"]) for row in records(sample, "SELECT * FROM rank_load")}
    assert found == {(rank, step): (moe.load_bytes(rank, step), "once") for rank in moe.SEEN for step in range(1, moe.STEPS + 1)}


def loads(lines: list[dict[str, Any]], microbatches: int | None = 2, **more: Any) -> list[dict[str, Any]]:
    """Rows of the view for rank 0 of a run of two stages."""
    data = "".join(json.dumps({"block": "decoder", **line}) + "\n" for line in lines).encode()
    rows = [row for piece in TOKENS_PER_EXPERT.parse(io.BytesIO(data), "tokens_per_expert/rank0.jsonl") for part in piece.tables.values()
            for row in part.to_pylist()]
    args = {**WIDTHS, "recompute_granularity": None, **more}
    printed = [{"name": name, "value": None if value is None else str(value), "origin": "dump"} for name, value in args.items() if value != "absent"]
    connection = from_rows({"expert_load": rows, "run_args": printed, "runs": [{"num_microbatches": microbatches}]})
    return records(connection, "SELECT * FROM rank_load ORDER BY iteration, run_index")


def test_the_saved_part_is_that_of_the_micro_batches_in_flight_and_the_spike_of_one_layer() -> None:
    lines = [{"iter": 1, "layer": 0, "tpe": [[1, 2], [3, 4]]}, {"iter": 1, "layer": 1, "tpe": [[5, 0], [1, 1]]}]
    (row,) = loads(lines)
    assert row["saved_bytes"] == SAVED * (3 + 7 + 5 + 2)
    assert row["spike_bytes"] == DISPATCH * 7
    (row,) = loads([{"iter": 1, "layer": 0, "tpe": [[9], [1], [8], [4]]}], microbatches=4)
    assert row["saved_bytes"] == SAVED * 12


def test_lists_doubled_by_recomputation_count_once_wherever_the_repetitions_stand() -> None:
    for passes in ([[1, 2], [3, 4], [1, 2], [3, 4]], [[1, 2], [1, 2], [3, 4], [3, 4]]):
        (row,) = loads([{"iter": 1, "layer": 0, "tpe": passes}], recompute_granularity="full", recompute_method="uniform")
        assert (row["recorded"], row["routed_tokens"], row["saved_bytes"]) == ("doubled", 10, 0)
        assert row["spike_bytes"] == (SAVED + DISPATCH) * 7
    (padded,) = loads([{"iter": 1, "layer": 0, "tpe": [[1, 2], [3, 4], [2, 2], [4, 4]]}], recompute_granularity="full")
    assert (padded["recorded"], padded["routed_tokens"]) == ("doubled", 10)


def test_merged_virtual_stages_are_told_and_their_mean_counts() -> None:
    (row,) = loads([{"iter": 1, "layer": 0, "tpe": [[1], [2], [3], [4]]}], virtual_pipeline_model_parallel_size=2)
    assert row["recorded"] == "merged"
    assert row["saved_bytes"] == SAVED * 10 / 2 * 2


def test_what_may_be_doubled_or_not_is_said_to_be_undecidable() -> None:
    (row,) = loads([{"iter": 1, "layer": 0, "tpe": [[1, 2], [1, 2]]}], microbatches=None, recompute_granularity="absent")
    assert (row["recorded"], row["load_bytes"]) == ("undecidable", None)
    (known,) = loads([{"iter": 1, "layer": 0, "tpe": [[1, 2], [1, 2]]}], microbatches=2)
    assert (known["recorded"], known["routed_tokens"]) == ("once", 6)


def test_a_restart_in_one_file_is_two_attempts() -> None:
    rows = loads([{"iter": step, "layer": 0, "tpe": [[step], [step]]} for step in (1, 2, 3, 2, 3)])
    assert [(row["run_index"], row["iteration"]) for row in rows] == [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3)]


@pytest.mark.parametrize(("more", "expected"), [
    ({"recompute_granularity": None}, Rule(SAVED, DISPATCH, False)), ({}, Rule(SAVED, DISPATCH, None)),
    ({"swiglu": False, "recompute_granularity": None}, Rule(2 * 8 + 4 * 4, DISPATCH, False)),
    ({"recompute_granularity": "selective", "recompute_modules": ["moe_act"]}, Rule(SAVED - 8, DISPATCH + 8, False)),
    ({"recompute_granularity": "selective", "recompute_modules": ["moe"]}, Rule(0, SAVED + DISPATCH, True)),
    ({"recompute_granularity": None, "expert_tensor_parallel_size": 2}, Rule(2 * 8 + 6 * 2, DISPATCH, False)),
    ({"hidden_size": None}, None),
])
def test_bytes_of_a_token(more: dict[str, Any], expected: Rule | None) -> None:
    assert rule({**WIDTHS, **more}) == expected
