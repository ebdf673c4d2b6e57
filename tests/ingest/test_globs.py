"""Patterns of paths: what fits, what is kept, and that no path takes long."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.globs import Pattern, filled, pattern


@pytest.mark.parametrize(("text", "path", "kept"), [
    ("*.log", "/a/b/train.log", {}), ("*.log", "/a/b/train.txt", None), ("*.log", "/a.log/b", None), ("rank_?.log", "/a/rank_7.log", {}),
    ("rank_?.log", "/a/rank_17.log", None), ("/data/*/x", "/data/b/x", {}), ("/data/*/x", "/other/data/b/x", None),
    ("checkpoints/**", "/a/checkpoints/b/c", {}), ("checkpoints/**", "/a/checkpoints", {}), ("checkpoints/**", "/a/checkpoints2/b", None),
    ("**/tmp/**", "/a/tmp/b", {}), ("/a/**", "/a/b/c", {}), ("/a/**/d", "/a/d", {}), ("/a/**/d", "/a/b/c/d", {}), ("/a/**/d", "/b/d", None),
    ("/data/{cluster}/runs/{user}/{run}/**", "/data/c1/runs/ann/night/logs/rank_0.log", {"cluster": "c1", "user": "ann", "run": "night"}),
    ("/data/{cluster}/**/{run}.log", "/data/c1/x/y/night.log", {"cluster": "c1", "run": "night"}),
    ("job-{run}-{id}", "/j/job-a-b-12", {"run": "a", "id": "b-12"}),
    ("job-{run}-{id}", "/j/job--12", None), ("{run}.log", "/a/.log", None), ("*{run}", "/a/b", None), ("a*b*c", "/x/aXbbYc", {}),
    ("ab*ba", "/x/aba", None),
    ("/logs/{run}/**", "/logs/night.zip!rank_0.log", {"run": "night.zip"}), ("[a].log", "/x/[a].log", {}), ("[a].log", "/x/a.log", None),
])
def test_what_fits_and_what_is_kept(text: str, path: str, kept: dict[str, str] | None) -> None:
    if text == "*{run}":
        with pytest.raises(ValueError, match="nothing between two wildcards"):
            pattern(text)
    else:
        assert pattern(text).match(path) == kept


@pytest.mark.parametrize(("text", "sentence"), [
    ("", "is empty"), ("/", "is empty"), ("a/../b", "no part is empty"), ("a**", "stands alone"), ("a//b", "no part is empty"), ("{run", "a brace"),
    ("{}", "a brace"), ("{1a}", "a brace"), ("{run}{user}", "nothing between"), ("{run}/{run}", "twice"), ("a\nb", "do not print"),
])
def test_what_cannot_be_meant_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        pattern(text)


LETTERS = st.text("ab/", max_size=12)
GLOBS = st.lists(st.sampled_from(["a", "b", "?", "*", "/", "/**/"]), min_size=1, max_size=10).map("".join)


@settings(deadline=None)
@given(glob=GLOBS, path=LETTERS)
def test_the_same_fit_as_by_a_regular_expression(glob: str, path: str) -> None:
    try:
        compiled = pattern(glob)
    except ValueError:
        return
    path = "/" + re.sub("/+", "/", path).strip("/")
    assert (compiled.match(path) is not None) == (by_regex(compiled, glob).fullmatch(path) is not None)


def by_regex(compiled: Pattern, glob: str) -> re.Pattern[str]:
    """A slow way to say the same."""
    parts = glob.strip("/").split("/")
    if not glob.startswith("/"):
        parts = ["**", *parts]
    texts = ["(?:/[^/]*)*" if part == "**" else "/" + part.replace("*", "[^/]*").replace("?", "[^/]") for part in parts]
    return re.compile("".join(texts))


def test_a_path_made_to_be_slow_is_not() -> None:
    text = "/".join(["*a*a*a*a*a*a*a*b"] * 8)
    assert pattern(f"**/{text}/**/{text}/end").match("/" + "/".join(["a" * 250] * 60)) is None


def test_templates_are_filled() -> None:
    assert filled("{user}/{run}", {"user": "ann", "run": "night"}) == "ann/night"
