"""Layers of each stage and virtual stage: splits worked out by hand from the grammar, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.theory.layout_string import parse_layout
from analysis.theory.stages import stage_layout
from ingest.errors import LedgerError

F, Z = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"
EMB, LOSS = "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"


def split(pp, layers, **more):
    return stage_layout({"pipeline_model_parallel_size": pp, "num_layers": layers, **more})


def table(layout):
    """Layers of each stage by chunk."""
    return [[cell.layers for cell in layout.of_stage(stage)] for stage in range(layout.pp)]


BY_HAND = [
    # PP, num_layers, further arguments, layers of each stage by chunk
    (4, 32, {}, [[8], [8], [8], [8]]),
    (2, 8, {"virtual_pipeline_model_parallel_size": 4}, [[1, 1, 1, 1], [1, 1, 1, 1]]),
    (4, 32, {"num_layers_per_virtual_pipeline_stage": 2}, [[2] * 4] * 4),
    (4, 30, {F: 6, Z: 8}, [[6], [8], [8], [8]]),
    (4, 27, {F: 6}, [[6], [7], [7], [7]]),
    (4, 26, {Z: 5}, [[7], [7], [7], [5]]),
    (2, 10, {F: 3, Z: 7}, [[3], [7]]),
    (4, 28, {F: 4, Z: 8, "num_virtual_stages_per_pipeline_rank": 2}, [[2, 2], [4, 4], [4, 4], [4, 4]]),
    (4, 30, {EMB: True, LOSS: True}, [[7], [8], [8], [7]]),
    (4, 31, {LOSS: True}, [[8], [8], [8], [7]]),
    (2, 15, {EMB: True, "virtual_pipeline_model_parallel_size": 2}, [[3, 4], [4, 4]]),
    (2, 14, {EMB: True, LOSS: True, "virtual_pipeline_model_parallel_size": 2}, [[3, 4], [4, 3]]),
    (1, 12, {}, [[12]]),
]

LAYOUTS = [
    # PP, layout, num_layers, MTP layers, layers of each stage by chunk
    (4, "Ett|ttt|ttt|ttL", 10, None, [[2], [3], [3], [2]]),
    (2, "E|tt|tt|L", 4, None, [[0, 2], [2, 0]]),
    (16, "Et*3|(tt|)*29,m|L", 61, 1, [[3, 2]] + [[2, 2]] * 13 + [[2, 0], [2, 0]]),
    (32, "Et*3|(tt|)*29,m|L", 61, 1, [[3]] + [[2]] * 29 + [[0], [0]]),
    (4, "E,t*2|t*3|t*3|t,L", 9, None, [[2], [3], [3], [1]]),
    (3, "(Et|)*1,tt|tL", 4, None, [[1], [2], [1]]),
    (4, "Et|||tL", 2, None, [[1], [0], [0], [1]]),
    (2, "Ett|tt|ttt|tmmL", 8, 2, [[2, 3], [2, 1]]),
    (4, "E|*3,ttL", 2, None, [[0], [0], [0], [2]]),
    (2, "E(t|t)*2|ttL", 6, None, [[1, 1], [2, 2]]),
    (1, "Et*4,L", 4, None, [[4]]),
    (2, [["embedding", "decoder"], ["decoder", "decoder", "mtp", "loss"]], 3, 1, [[1], [2]]),
]


@pytest.mark.parametrize(("pp", "layers", "more", "want"), BY_HAND)
def test_splits_worked_out_by_hand(pp, layers, more, want):
    assert table(split(pp, layers, **more)) == want


@pytest.mark.parametrize(("pp", "text", "layers", "mtp", "want"), LAYOUTS)
def test_layouts_worked_out_by_hand(pp, text, layers, mtp, want):
    assert table(split(pp, layers, pipeline_model_parallel_layout=text, mtp_num_layers=mtp)) == want


def test_global_index_of_the_first_layer_is_chunk_major():
    even = split(2, 8, virtual_pipeline_model_parallel_size=2)
    assert [[cell.first_layer for cell in even.of_stage(stage)] for stage in (0, 1)] == [[0, 4], [2, 6]]
    accounted = split(2, 15, virtual_pipeline_model_parallel_size=2, **{EMB: True})
    assert [[cell.first_layer for cell in accounted.of_stage(stage)] for stage in (0, 1)] == [[0, 7], [3, 11]]


def test_without_a_pipeline_one_cell_holds_both_ends():
    cell = split(1, 4, mtp_num_layers=1).cells[0]
    assert (cell.embedding, cell.loss, cell.embedding_copy) == (True, True, False)


def test_where_embedding_mtp_norm_and_loss_live():
    layout = split(16, 61, pipeline_model_parallel_layout="Et*3|(tt|)*29,m|L", mtp_num_layers=1)
    first, standalone, last = layout.cells[0], layout.cells[30], layout.cells[31]
    assert first.embedding
    assert not first.loss
    assert not first.embedding_copy
    assert (standalone.stage, standalone.chunk, standalone.mtp, standalone.embedding_copy) == (14, 1, 1, True)
    assert last.loss
    assert last.final_norm
    assert last.output_weight
    assert not last.embedding_copy
    plain = split(4, 32, mtp_num_layers=1)
    assert plain.cells[-1].mtp == 1
    assert plain.cells[-1].embedding_copy
    assert not split(1, 4).cells[0].output_weight
    assert split(1, 4, untie_embeddings_and_output_weights=True).cells[0].output_weight


def test_worked_example_norms_of_the_first_and_the_last_stage():
    layout = split(2, 32)
    norms = [sum(cell.layers * 2 * 4096 + cell.final_norm * 4096 for cell in layout.of_stage(stage)) for stage in (0, 1)]
    assert norms == [131_072, 135_168]


def test_bars_of_a_hybrid_pattern_are_stages():
    assert table(split(2, 8, hybrid_layer_pattern="M-M*|MM-M")) == [[4], [4]]


@pytest.mark.parametrize(("pp", "layers", "more", "sentence"), [
    (3, 32, {}, "pipeline_model_parallel_size is 3 and does not divide num_layers 32; 2, 4"),
    (4, 32, {"virtual_pipeline_model_parallel_size": 3}, "num_layers is 32: stage 0 gets 8; a multiple of 3"),
    (4, 30, {F: 5}, "25 of num_layers 30 are left for 3 stages"),
    (4, 30, {F: 5, EMB: True}, "account_for_embedding_in_pipeline_split is True; False would fit"),
    (2, 3, {"pipeline_model_parallel_layout": "Ett|tL", F: 2}, "decoder_first_pipeline_num_layers is 2; None would fit"),
    (2, 4, {"pipeline_model_parallel_layout": "Ett|tL"}, "has 3 t; num_layers 4 would fit"),
    (2, 3, {"pipeline_model_parallel_layout": "Ett|t L"}, "has ' '; only E, t, m, L"),
    (2, 3, {"pipeline_model_parallel_layout": "tEt|tL"}, "starts with 't'; exactly one E, first of all"),
    (2, 3, {"pipeline_model_parallel_layout": "Ett|Lt"}, "ends with 't'; exactly one L, last of all"),
    (2, 3, {"pipeline_model_parallel_layout": "Ett|t|L"}, "has 3 cells; a multiple of"),
    (2, 3, {"pipeline_model_parallel_layout": "Ett|tmL"}, "has 1 m; mtp_num_layers 0"),
    (2, 3, {"pipeline_model_parallel_layout": "Etm|ttL", "mtp_num_layers": 1}, "a t after an m"),
    (2, 3, {"pipeline_model_parallel_layout": "Ettt|m|m|L", "mtp_num_layers": 2}, "m in 2 cells"),
    (2, 3, {"pipeline_model_parallel_layout": "Ettt|m||L", "mtp_num_layers": 1}, "m in cell 1; cell 2 or later"),
    (2, 3, {"pipeline_model_parallel_layout": "Et*99999999|L"}, "unrolls to more than"),
    (2, 3, {"pipeline_model_parallel_layout": 7}, "is 7; a string such as"),
    (2, 3, {"pipeline_model_parallel_layout": [["embedding", "encoder"], ["loss"]]}, "has 'encoder'; embedding, decoder, mtp, loss"),
])
def test_what_does_not_work_out_is_one_sentence(pp, layers, more, sentence):
    with pytest.raises(LedgerError, match=sentence.replace("(", r"\(")):
        split(pp, layers, **more)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_every_layer_stands_once_and_in_order(pp, chunks, each):
    layers = pp * (chunks if pp > 1 else 1) * each
    layout = split(pp, layers, virtual_pipeline_model_parallel_size=chunks)
    assert [index for cell in layout.cells for index in range(cell.first_layer, cell.first_layer + cell.layers)] == list(range(layers))
    assert sum(layout.layers_of_stage(stage) for stage in range(pp)) == layers


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_a_written_layout_says_what_its_cells_say(counts):
    cells = ["t" * count for count in counts]
    cells[0], cells[-1] = "E" + cells[0], cells[-1] + "L"
    short = [f"E,t*{counts[0]}" if index == 0 and counts[0] else cell for index, cell in enumerate(cells)]
    if len(counts) > 1:
        assert parse_layout("|".join(short)) == cells
