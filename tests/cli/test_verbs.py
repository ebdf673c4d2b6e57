"""Every verb that is listed exists, helps, and is told of in the changelog."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import VERBS, build_parser, main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_helps_and_the_changelog_tells_of_it(verb, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    assert f"hbmledger {verb}" in capsys.readouterr().out
    assert f"`hbmledger {verb}`" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_command_lists_its_verbs():
    listed = build_parser().format_help().replace("\n", " \n")
    assert [verb for verb in VERBS if f"    {verb} " not in listed] == []


@pytest.mark.parametrize(("argv", "helps"), [
    (["report", "X", "--attempt", "0"], "hbmledger report"), (["parse", "--nosuch", "a.log"], "hbmledger parse"),
    (["snapshot"], "hbmledger snapshot"), (["nosuch"], "hbmledger"), (["--nosuch", "runs"], "hbmledger runs"), ([], "hbmledger"),
])
def test_a_wrong_option_names_the_help_that_lists_the_right_ones(argv, helps, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    assert f"`{helps} --help`" in capsys.readouterr().err
