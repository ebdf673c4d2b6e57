"""docs/methods/parallelism.md: what each word of its first table claims is what the expected ledger does when that size goes from 1 to 2.

The claims are turned into factors here, by arithmetic on the model's shapes, apart from the ledger.
"""

from __future__ import annotations

import re

import pytest

from docs.make_parallelism import COLUMNS, ROWS, TARGET, Doubling, factors, grown, page

PAGE = TARGET.read_text(encoding="utf-8")
H, F, Q, G, A, EXPERT, K = 4096, 14336, 4096, 1024, 32, 4096, 2
ATTENTION = H * (Q + 2 * G) + Q * H
EXPERTS = 8 * 3 * H * EXPERT
LAYER_INPUTS = 8 * H + 2 * 4
LAYER_OUTPUTS = 4 * Q + 4 * G + 6 * F + 4 * A
DENSE_WORDS = 2 * 128256 * H / 32


def table() -> dict[str, list[str]]:
    """The first table, by dimension."""
    text = PAGE.partition("## What is divided")[2].partition("\n\nTwo ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows[1:]}


def claimed(words: str, row: Doubling) -> float | None:
    """The factor that a cell claims for size 2 over size 1; None for a class that is not there."""
    if words.startswith("none"):
        return None
    if words.startswith(("whole", "no less")):
        return 1.0
    if words.startswith(("/ ", "L/p layers")):
        return 0.5
    p, v = 2, 2
    return {"times 1 + (p - 1)/(p·v)": 1 + (p - 1) / (p * v), "times p - (p - 1)/v": p - (p - 1) / v,
            "part: outputs of matrices / TP; norms, residual and router whole": (LAYER_INPUTS + LAYER_OUTPUTS / 2) / (LAYER_INPUTS + LAYER_OUTPUTS),
            "experts / EP": _experts_halved(1), "experts / ETP": _experts_halved(2),
            "expert inputs times ETP (gathered), outputs whole: 1/ETP as wide, ETP times the tokens": _expert_inputs_doubled()}[words]


def _experts_halved(tensor: int) -> float:
    rest = (ATTENTION + DENSE_WORDS) / tensor
    return (rest + EXPERTS / 2) / (rest + EXPERTS)


def _expert_inputs_doubled() -> float:
    """A token of one layer under TP 2 with SP: attention, norms, the experts' input twice as long, fc1 and activation as before."""
    attention = (4 * H + 4 + 4 * Q + 4 * G + 4 * A) / 2
    router = (4 * H + 4 + 13 * 8 + 8 * K) / 2
    inputs, outputs = 2 * H * K / 2, (6 * EXPERT + 4) * K / 2
    return (attention + router + 2 * inputs + outputs) / (attention + router + inputs + outputs)


def test_the_figures_are_current() -> None:
    assert page(PAGE) == PAGE, "run `make docs`"


def test_the_table_has_each_row() -> None:
    assert list(table()) == [row.name for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_claim_is_what_the_ledger_does(row: Doubling) -> None:
    found = factors(row)
    for name, words in zip(COLUMNS, table()[row.name], strict=True):
        wanted = claimed(words, row)
        assert found[name] == (None if wanted is None else pytest.approx(wanted, rel=0.025)), (name, words)


@pytest.mark.parametrize(("name", "kind"), [
    ("DP", "dp_cp"), ("TP", "tp"), ("CP", "cp"), ("PP, first stage", "pp"), ("PP, last stage", "pp"), ("EP", "ep"), ("ETP", "expert_tp")])
def test_a_dimension_brings_its_communicator(name: str, kind: str) -> None:
    (row,) = [row for row in ROWS if row.name == name]
    assert kind in grown(row)
    assert f"`{kind}`" in next(line for line in PAGE.splitlines() if re.match(rf"\| {re.escape(name)} \| \d", line))
