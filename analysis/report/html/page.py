"""Fill the template with an overview; nothing is computed here that the other faces do not say too."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from analysis.charts import palette
from analysis.coverage import shown_ranks
from analysis.report.html import svg
from analysis.rows import Overview, Rank
from analysis.verdict import size_text

ROWS = 500
"""Rows of a table; the picture shows every rank, `--format json` tells them all."""


def as_html(found: Overview) -> str:
    """One HTML document."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"size": size_text, "ranks": lambda numbers: shown_ranks(tuple(numbers))}
    template = environment.from_string(files("analysis").joinpath("report", "html", "report.html.j2").read_text(encoding="utf-8"))
    fullest = sorted(found.ranks, key=_fullest_first)
    pictures = {"bars": svg.rank_bars(fullest), "map": svg.rank_map(found.ranks, found.configuration),
                "theory": svg.theory_bars(found.theory.compared if found.theory else ()), "staircase": svg.staircase(found.risers)}
    return template.render(found=found, ranks=fullest[:ROWS], near={one.rank: one for one in found.near_limit}, made=datetime.now(UTC),
                           pictures=pictures, palette=palette)


def _fullest_first(rank: Rank) -> tuple[float, int, int]:
    left = rank.soft_headroom_bytes if rank.soft_headroom_bytes is not None else rank.headroom_bound_bytes
    return (left if left is not None else float("inf"), -(rank.max_reserved_bytes or rank.max_allocated_bytes or 0), rank.rank or 0)
