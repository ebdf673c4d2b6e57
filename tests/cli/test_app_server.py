"""What `hbmledger app` starts: loopback unless told otherwise, the installed pages, the settings of `.streamlit/config.toml` as flags."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli import app_server, main

ROOT = Path(__file__).resolve().parent.parent.parent


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def test_flags_and_config_file_say_the_same() -> None:
    assert flat(tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())) == app_server.OPTIONS


def test_every_setting_is_known_to_streamlit() -> None:
    from streamlit import config

    assert set(app_server.OPTIONS) <= {option.key for option in config.get_config_options().values()}


def test_command_serves_the_installed_pages_on_loopback() -> None:
    command = app_server.command("127.0.0.1", 8501)
    assert command[:4] == [sys.executable, "-m", "streamlit", "run"]
    assert Path(command[4]) == ROOT / "app.py"
    assert {"--server.address=127.0.0.1", "--server.port=8501"} <= set(command)
    assert {"--server.enableXsrfProtection=true", "--client.showErrorDetails=none"} <= set(command)


def test_an_app_of_the_current_folder_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')\n")
    monkeypatch.chdir(tmp_path)
    assert app_server.page_file() == ROOT / "app.py"


@pytest.mark.parametrize("port", ["0", "70000", "-1"])
def test_a_port_that_cannot_be_is_told(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", f"--port={port}"]) == 2
    assert f"port is {port}" in capsys.readouterr().err


def test_missing_streamlit_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["app"]) == 2
    assert "streamlit is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_server_ends_with_the_command_that_started_it(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    ended: list[str] = []

    class Serving:
        """A server that serves until it is told to end; waiting for it is when the signal comes."""

        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            pass

        def wait(self) -> int:
            if not ended:
                signal.raise_signal(number)
            return 0

        def terminate(self) -> None:
            ended.append("server")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(subprocess, "Popen", Serving)
    assert main(["app"]) == 0
    assert ended == ["server"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_lake_reaches_the_server_and_a_failed_server_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    started: dict[str, Any] = {}

    class Failed:
        """A server that ends at once."""

        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            started.update(command=command, env=env)

        def wait(self) -> int:
            return 1

    monkeypatch.setattr(subprocess, "Popen", Failed)
    assert main(["app", "--lake", "somewhere", "--port", "9000"]) == 2
    assert started["env"]["HBMLEDGER_LAKE"] == "somewhere"
    assert "code 1" in capsys.readouterr().err
