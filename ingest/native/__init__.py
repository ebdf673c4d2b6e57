"""The compiled helpers: plain C shared objects, built at install where a compiler is there, opened through ctypes.

A shared object with a C interface needs neither Python's headers nor a build per Python version; where none was
built, `library` gives None and the Python implementation of the same interface is used. Each `.c` file here becomes one
library of its own; `hatch_build.py` compiles it with `cc -O3` at install, and `python -m ingest.native` does so in a checkout.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
SUFFIX = ".dll" if sys.platform == "win32" else ".so"


FLAGS = ("-O3", "-std=c11", "-D_GNU_SOURCE", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")


@cache
def library(name: str) -> ctypes.CDLL | None:
    """The library built from `<name>.c`, or None where there is none (or `HBMLEDGER_NATIVE=0` forbids it)."""
    if os.environ.get("HBMLEDGER_NATIVE") == "0":
        return None
    path = FOLDER / f"_{name}{SUFFIX}"
    if not path.exists():
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None


def build(folder: Path = FOLDER) -> list[Path]:
    """Compile every `.c` of the folder beside its source; an empty list where no compiler is there. Raises `CalledProcessError`."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform == "win32":
        return []
    built = []
    for source in sorted(folder.glob("*.c")):
        target = folder / f"_{source.stem}{SUFFIX}"
        partial = target.with_suffix(f".{os.getpid()}.part")
        subprocess.run([compiler, *FLAGS, "-o", str(partial), str(source), "-lm"], check=True)
        partial.replace(target)
        built.append(target)
    return built
