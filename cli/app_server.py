"""`hbmledger app`: serve the web face of a lake with Streamlit, on loopback unless told otherwise.

Streamlit reads `.streamlit/config.toml` from the folder it is started in only, so that everything this app relies on
(loopback, XSRF and CORS checks, no usage statistics, no error details to a browser) is passed as flags.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ingest.errors import OK, LedgerError

NAME = "app"
HELP = "serve the web app of a lake"

OPTIONS: dict[str, str | int | bool] = {
    "server.address": "127.0.0.1", "server.enableXsrfProtection": True, "server.enableCORS": True, "server.maxUploadSize": 4096,
    "server.fileWatcherType": "none", "server.showEmailPrompt": False, "runner.magicEnabled": False,
    "runner.postScriptGC": False,  # `app_pages._garbage` does it, less often
    "browser.gatherUsageStats": False, "client.showErrorDetails": "none",
    "client.showErrorLinks": False,
    "client.toolbarMode": "viewer", "theme.metricValueFontSize": "1.35rem",
    "theme.baseFontSize": 14, "theme.baseRadius": "small", "theme.headingFontSizes": '["2.1rem", "2.1rem", "1.25rem"]',
    "theme.light.primaryColor": "#1f5f8b", "theme.light.textColor": "#131210", "theme.dark.primaryColor": "#7fb8dd",
}
"""What `.streamlit/config.toml` says, by Streamlit's flat names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: ./lake or HBMLEDGER_LAKE); made by the first upload")
    parser.add_argument("--port", type=int, default=8501, metavar="N", help="port to listen on (default 8501)")
    parser.add_argument("--host", default="127.0.0.1", metavar="HOST",
                        help="address to listen on (default 127.0.0.1: this machine only; whoever reaches it sees every run)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, or until this process is told to end: the server ends with it and gives the port back."""
    with _stops_as_ctrl_c():
        server = subprocess.Popen(command(arguments.host, arguments.port), env=_environment(arguments.lake))
        try:
            code = server.wait()
        except KeyboardInterrupt:
            server.terminate()
            server.wait()
            return OK
    if code > 0:
        raise LedgerError(f"the app ended with code {code}", where=f"{arguments.host}:{arguments.port}",
                          todo="its own message is above; where the port is taken, another one with --port N")
    return OK


@contextmanager
def _stops_as_ctrl_c() -> Iterator[None]:
    """A service manager's SIGTERM and a closed terminal's SIGHUP end this process as Ctrl-C does; signals can be caught in the main thread only."""
    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def command(host: str, port: int) -> list[str]:
    """The command that serves the app. Raises LedgerError where Streamlit or the page files are missing, or the port cannot be one."""
    if importlib.util.find_spec("streamlit") is None:
        raise LedgerError("streamlit is not installed", todo="install hbmledger with its dependencies into this environment")
    if not 0 < port < 65536:
        raise LedgerError(f"port is {port}; 1 to 65535 would fit")
    flags = {**OPTIONS, "server.address": host, "server.port": port}
    return [sys.executable, "-m", "streamlit", "run", str(page_file()), *(f"--{name}={_text(value)}" for name, value in flags.items())]


def page_file() -> Path:
    """`app.py` beside the installed pages, not an `app.py` of the current folder. Raises LedgerError where it is missing."""
    pages = importlib.util.find_spec("app_pages")
    found = Path(pages.origin).parent.parent / "app.py" if pages and pages.origin else None
    if found is None or not found.is_file():
        raise LedgerError("the app's pages are missing from this installation", todo="install hbmledger again")
    return found


def _environment(lake: str | None) -> dict[str, str]:
    return dict(os.environ) if lake is None else {**os.environ, "HBMLEDGER_LAKE": lake}


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
