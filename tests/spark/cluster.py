"""A real Spark cluster on loopback for tests: a master, two workers and a Connect server, each a Java process of this package's full pyspark.

Bounded: 512 MB an executor, 1 GB the server, 256 MB the others; ended by process group, executors with their worker; deadlines throughout.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 240.0
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m", "spark.executor.cores": "1",
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.log.level": "WARN", "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m", "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false", "spark.eventLog.enabled": "false",
}


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """The address of the Connect server of a cluster of two workers, for as long as the block runs."""
    import pyspark

    home = Path(pyspark.__file__).parent
    master_port, server_port = _free_port(), _free_port()
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> None:
        environment = _environment(home, folder, "1g" if name == "server" else "256m")
        with open(folder / f"{name}.log", "wb") as log:
            started.append(subprocess.Popen([str(home / "bin" / command[0]), *command[1:]], env=environment, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, cwd=folder, start_new_session=True))

    master = f"spark://127.0.0.1:{master_port}"
    try:
        start("master", "spark-class", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(master_port),
              "--webui-port", "0")
        _wait(lambda: _answers(master_port), started, folder, "master")
        for worker in ("worker1", "worker2"):
            start(worker, "spark-class", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1",
                  "--memory", "640m", "--work-dir", str(folder / worker), master)
        settings = {**_SETTINGS, "spark.connect.grpc.binding.port": str(server_port)}
        start("server", "spark-submit", "--master", master, *(part for pair in settings.items() for part in
              ("--conf", "=".join(pair))), "--class", _SERVER, "spark-internal")
        _wait(lambda: _answers(server_port), started, folder, "server")
        _wait(lambda: (folder / "master.log").read_text(errors="replace").count("Registering worker") == 2, started, folder, "master")
        yield f"sc://127.0.0.1:{server_port}"
    finally:
        for process in reversed(started):
            _end(process)


def _environment(home: Path, folder: Path, memory: str) -> dict[str, str]:
    return {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13", "SPARK_DAEMON_MEMORY": memory,
            "SPARK_LOCAL_DIRS": str(folder / "local"), "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def _wait(ready: Callable[[], bool], started: list[subprocess.Popen[bytes]], folder: Path, name: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if time.monotonic() > deadline or any(process.poll() is not None for process in started):
            said = (folder / f"{name}.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the {name} of the Spark cluster did not start:\n{said}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and those it started (executors), which share its group."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.poll()
