"""The project's own files hold together: pins for every dependency, ranges that allow them, a licence that is whole."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def test_every_dependency_is_pinned_within_its_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    wanted = [Requirement(text) for text in project["dependencies"] + project["optional-dependencies"]["dev"]]
    assert [str(one) for one in wanted if not one.specifier.contains(pinned.get(canonicalize_name(one.name), "0"))
            or canonicalize_name(one.name) not in pinned] == []


def test_the_licence_is_whole():
    text = (ROOT / "LICENSE").read_text()
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text
    assert "END OF TERMS AND CONDITIONS" in text
