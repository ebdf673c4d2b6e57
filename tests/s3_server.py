"""An S3-compatible store on loopback for tests: `moto`, made to decide one write at a time.

moto looks whether an object is there and then stores it, in two steps that two requests can both pass; a real store does that at once. Writes
are therefore passed to it one after the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

BUCKET = "ledger-test"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def application(conditional: bool = True) -> Application:
    """moto as a WSGI application, writes one at a time; without `conditional` it ignores If-None-Match, as some stores do."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    moto, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("PUT", "POST", "DELETE"):
            return moto(environ, start)
        if not conditional:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with lock:
            return list(moto(environ, start))

    return answer


def serve(conditional: bool) -> None:
    """Serve on a free port of loopback with an empty bucket until the input ends; the address is the only line of output."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any) -> None:
            pass

    server = make_server("127.0.0.1", 0, application(conditional), threaded=True, request_handler=Quiet)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(_with_bucket(f"http://127.0.0.1:{server.server_port}"), flush=True)
    sys.stdin.read()


@contextmanager
def serving(conditional: bool = True) -> Iterator[str]:
    """The address of a server in a process of its own (delta-rs may hold the interpreter's lock while it waits for an answer)."""
    for name in ("moto", "flask_cors", "fsspec"):
        pytest.importorskip(name, reason=f"needs {name} (the extra dev)")
    command = [sys.executable, "-m", "tests.s3_server", *(() if conditional else ("careless",))]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def _with_bucket(address: str) -> str:
    import boto3

    client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    client.create_bucket(Bucket=BUCKET)
    return address


def environment(address: str) -> dict[str, str]:
    """What a command finds its store by."""
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": address}


if __name__ == "__main__":
    serve(conditional="careless" not in sys.argv)


def fresh(address: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """An address below which nothing is yet; this process, and those it starts, know the way to the store by their environment alone."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    for name, value in environment(address).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{folder.name}"
