"""Records that a wrap tore over lines: whole again at every width, never a number that was cut."""

from __future__ import annotations

import textwrap

import pytest

from tests.ingest.parsers.log.reading import read

MIB, GIB = 2**20, 2**30
ROUNDED = "[Rank 8] (after 2 iterations) memory (MB) | allocated: 20110.50 | max allocated: 40220.25 | reserved: 42000.00 | max reserved: 42100.00"
EXACT = ("[Rank 8] (after 2 iterations) memory (MB) | allocated: 1422.904296875 | max allocated: 18633.24462890625 | reserved: 24210.0 | "
         "max reserved: 24212.0")
ITERATION = (" iteration       40/    1000 | consumed samples:          160 | elapsed time per iteration (ms): 1402.6 | learning rate: 1.488E-04 | "
             "global batch size:     4 | lm loss: 1.244310E+01 | loss scale: 16384.0 | grad norm: 48.207 | "
             "number of skipped iterations:   0 | number of nan iterations:   1 |")
OOM = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 546.00 MiB. GPU 5 has a total capacity of 79.11 GiB of which 414.19 MiB is "
       "free. Process 41877 has 78.70 GiB memory in use. Of the allocated memory 70.73 GiB is allocated by PyTorch, with 9.46 GiB allocated in "
       "private pools (e.g., CUDA Graphs), and 2.36 GiB is reserved by PyTorch but unallocated.")
THEORY = "Theoretical memory footprints: weight and optimizer=9120.44 MB, activation=2215.60 MB, total=11336.04 MB"
WIDTHS = range(34, 132)


def indented(text: str, width: int) -> str:
    return "\n".join("    " + text[at:at + width] for at in range(0, len(text), width))


def hard(text: str, width: int) -> str:
    return "\n".join(text[at:at + width] for at in range(0, len(text), width))


def stripped(text: str, width: int) -> str:
    """As a terminal's selection is copied: blanks at the seams are lost."""
    return "\n".join(text[at:at + width].strip() for at in range(0, len(text), width))


def words(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))


@pytest.mark.parametrize("wrap", [hard, stripped, words, indented])
@pytest.mark.parametrize(("text", "figures"), [
    (ROUNDED, (20110.5, 40220.25, 42000, 42100)), (EXACT, (1422.904296875, 18633.24462890625, 24210, 24212))])
def test_a_memory_record_is_whole_again_at_every_width(wrap, text, figures):
    for width in WIDTHS:
        rows = read("something before\n" + wrap(text, width) + "\nsomething after\n")
        (row,) = rows["rank_memory"]
        found = tuple(row[f"{name}_bytes"] for name in ("allocated", "max_allocated", "reserved", "max_reserved"))
        assert found == tuple(round(figure * MIB) for figure in figures), width
        assert (row["rank"], row["iteration"], row["line"]) == (8, 2, 2)
        assert "rejects" not in rows


@pytest.mark.parametrize("wrap", [hard, stripped, words])
def test_an_iteration_line_is_whole_again_at_every_width(wrap):
    for width in range(50, 240):
        (row,) = read(wrap(ITERATION, width) + "\ntime (ms) | forward-compute: 171.22 | optimizer: 110.02 |\n")["iterations"]
        found = row["iteration"], row["elapsed_ms"], row["grad_norm"], row["losses"], row["nan"]
        assert found == (40, 1402.6, 48.207, {"lm loss": 12.4431}, 1), width


@pytest.mark.parametrize("wrap", [hard, stripped, words])
def test_an_out_of_memory_error_is_whole_again_at_every_width(wrap):
    for width in range(80, 260):
        (row,) = read(wrap(OOM, width) + "\n[rank1]: next\n")["oom_events"]
        expected = {"requested_bytes": 546 * MIB, "capacity_bytes": round(79.11 * GIB), "free_bytes": round(414.19 * MIB),
                    "allocated_bytes": round(70.73 * GIB), "private_pool_bytes": round(9.46 * GIB), "reserved_unallocated_bytes": round(2.36 * GIB)}
        assert {name: row.get(name) for name in expected} == pytest.approx(expected, abs=1), width


@pytest.mark.parametrize("wrap", [hard, stripped, words])
def test_a_footprint_is_whole_again_at_every_width(wrap):
    for width in WIDTHS:
        (row,) = read(wrap(THEORY, width) + "\nother\n")["theory_reports"]
        assert (row["shape"], row["total_bytes"], row["activation_bytes"]) == ("full", round(11336.04 * MIB), round(2215.6 * MIB)), width


@pytest.mark.parametrize("cut", range(36, len(ROUNDED)))
def test_a_record_glued_to_the_rest_of_a_wrapped_one_is_read(cut):
    rows = read(f"{ROUNDED[:cut]}\n{ROUNDED[cut:]}{ROUNDED.replace('Rank 8', 'Rank 9')}\n")
    assert [(row["rank"], row["max_reserved_bytes"]) for row in rows["rank_memory"]] == [(8, 42100 * MIB), (9, 42100 * MIB)]
    assert "rejects" not in rows


def test_what_follows_a_torn_record_of_its_own_is_no_piece_of_it():
    rows = read(ROUNDED[:70] + "\n" + ROUNDED.replace("Rank 8", "Rank 9") + "\n")
    assert [row["rank"] for row in rows["rank_memory"]] == [9]
    assert [row["line"] for row in rows["rejects"]] == [1]
    wrong_sum = THEORY[:THEORY.index("15.60")] + "\n15.60 MB, total=11337.04 MB\n"
    assert "theory_reports" not in read(wrong_sum)


def test_a_figure_that_no_bar_closes_measures_nothing_unless_its_digits_are_all_there():
    (row,) = read(" iteration       20/  500000 | consumed samples:        20480 | elapsed time per iteration (ms): 12\n")["iterations"]
    assert "elapsed_ms" not in row
    assert row["other"] == {"elapsed time per iteration (ms) (unterminated)": "12"}
    (row,) = read("iteration 3/ 10 | consumed samples: 8 | lm loss: 2.461001E+00\n")["iterations"]
    assert row["losses"] == {"lm loss": 2.461001}
