"""A diff of two attempts: what changed, the bytes each change explains by the ledger, and what cannot be compared."""

from __future__ import annotations

from analysis.diff.compare import diff, side_of
from analysis.diff.text import SHOWN, as_plain, as_text
from tests.analysis.made import GIB, dense_run, shown
from tests.analysis.test_reconcile import MODEL


def made(changes=(), peak=0, world=16, **environment):
    """One side: the hand-made run with a model, some arguments another, every peak higher by `peak` GiB."""
    rows = dense_run()
    rows["run_args"] += [{"name": name, "value": str(value), "origin": "dump", "line": 40 + at}
                         for at, (name, value) in enumerate({**MODEL, **dict(changes)}.items())]
    rows["runs"][0] |= {"num_microbatches": 8, "world_size": world}
    rows["rank_memory"] = [{**row, "max_allocated_bytes": row["max_allocated_bytes"] + peak * GIB,
                            "max_reserved_bytes": row["max_reserved_bytes"] + peak * GIB} for row in rows["rank_memory"]]
    rows["environment"] = [{"name": name, "value": value, "line": 5} for name, value in environment.items()]
    return side_of(shown(rows), "made")


def test_a_run_does_not_differ_from_itself():
    found = diff(made(NCCL="1"), made(NCCL="1"))
    assert not found.differs
    assert found.comparable
    assert (found.changes, found.appeared, found.gone) == ((), (), ())
    assert not any(one.change_bytes for one in (*found.measured, *found.expected))
    assert "Nothing differs." in as_text(found)


def test_an_argument_explains_what_its_ledger_says():
    before, after = made(), made({"micro_batch_size": 2}, peak=5)
    found = diff(before, after)
    change = next(one for one in found.changes if one.name == "micro_batch_size")
    ledgers = [max(row.peak_allocated_bytes for row in side.overview.ledger.expected.stages.values()) for side in (before, after)]
    assert found.explained.together_bytes == ledgers[1] - ledgers[0]
    assert change.explains_bytes == found.explained.together_bytes > 0
    assert found.explained.rest_bytes == 0
    assert found.changes[0] == change
    assert (change.before, change.after, change.before_source.line is not None) == ("1", "2", True)


def test_measured_stages_stand_beside_each_other():
    found = diff(made(), made(peak=5))
    peaks = {one.where: one.change_bytes for one in found.measured if one.what == "max_allocated_bytes"}
    assert peaks == {f"stage {stage}": 5 * GIB for stage in range(4)}
    assert found.sentences[0] == "The fullest rank of made#0 peaked 5.00 GiB above that of made#0: 29.0 GiB on rank 0 (stage 0) against " \
        "24.0 GiB on rank 0 (stage 0)."
    assert any(text.startswith("+5.00 GiB of the measured change is not in the ledger") for text in found.sentences)


def test_environment_and_versions_are_told_apart():
    found = diff(made(NCCL_BUFFSIZE="4194304", **{"NCCL version": "2.20"}), made(NCCL_BUFFSIZE="8388608", **{"NCCL version": "2.27"}))
    assert {(one.kind, one.name, one.before, one.after) for one in found.changes} == {
        ("environment", "NCCL_BUFFSIZE", "4194304", "8388608"), ("version", "NCCL version", "2.20", "2.27")}
    assert {one.explains_bytes for one in found.changes} == {None}


def test_an_environment_that_one_side_does_not_tell_is_no_change():
    found = diff(made(), made(NCCL_BUFFSIZE="8388608"))
    assert found.changes == ()
    assert found.not_comparable["environment"] == "no environment in the artifacts of made#0"


def test_an_argument_printed_by_one_side_only_counts_where_it_is_set():
    found = diff(made(), made({"new_switch": False, "other_switch": True}))
    assert [(one.name, one.before, one.after) for one in found.changes] == [("other_switch", None, "True")]


def test_a_parallel_size_of_one_is_as_good_as_none():
    found = diff(made(), made({"context_parallel_size": 1, "expert_model_parallel_size": 2}))
    assert [one.name for one in found.changes if one.kind == "argument"] == ["expert_model_parallel_size"]


def test_the_layout_moves_as_one_and_stages_pair_by_their_part():
    found = diff(made(), made({"pipeline_model_parallel_size": 2, "tensor_model_parallel_size": 4, "num_layers": 32}))
    assert set(found.explained.layout) == {"pipeline_model_parallel_size", "tensor_model_parallel_size"}
    sizes = {one.explains_bytes for one in found.changes if one.name in found.explained.layout}
    assert len(sizes) == 1
    assert sizes != {None}
    assert as_text(found).count("  as one  argument ") == 1
    assert {one.where for one in found.expected} == {"first stage", "fullest middle stage", "last stage"}


def test_what_alone_would_be_refused_says_why():
    """Micro-batches of 3 on 2 data-parallel ranks fit a global batch of 48, not the 16 of before."""
    found = diff(made({"global_batch_size": 16}), made({"global_batch_size": 48, "micro_batch_size": 3}))
    (refused,) = (one for one in found.changes if one.explains_bytes is None)
    assert refused.name == "micro_batch_size"
    assert refused.reason == "alone it would be refused: global_batch_size 16 is no multiple of micro_batch_size 3 x data-parallel size 2"
    assert found.explained.together_bytes > 0


def test_without_arguments_and_memory_nothing_can_be_compared():
    bare = side_of(shown({"iterations": [{"iteration": 1, "line": 3}]}, "bare"), "bare")
    found = diff(bare, bare)
    assert not found.comparable
    assert found.not_comparable["measured"] == "no stage was measured in both"


def test_text_is_cut_and_clean():
    found = diff(made(), made({f"switch_{at}\x1b[31m": "x" * 500 for at in range(SHOWN + 5)}))
    text = as_text(found)
    assert "\x1b" not in text
    assert "and 5 more: --format json has all" in text
    assert max(map(len, text.splitlines())) < 150
    assert len(as_plain(found)["changes"]) == SHOWN + 5


def test_plain_answer_has_every_part():
    plain = as_plain(diff(made(), made(peak=1)))
    assert set(plain) == {"before", "after", "differs", "comparable", "sentences", "changes", "explained_bytes", "only_together_bytes", "theory",
                          "expected", "measured", "findings", "not_comparable"}
    assert plain["differs"] is True
