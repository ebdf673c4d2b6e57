"""The known cases of the shared data, judged through the installed command by the shared judge itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).parent / "hbmledger"


@pytest.mark.parametrize("kind", [
    ["shapes", "--families", "theory,rank_memory,args,iteration,oom,alloc_stats,npu,wrapping"], ["logs"], ["real"],
], ids=lambda kind: kind[0])
def test_known_cases_hold(shared: Path, kind: list[str]) -> None:
    judge = shared / "tools/check_cases.py"
    if not judge.exists() or not COMMAND.exists():
        pytest.skip(f"needs {judge} and {COMMAND}")
    done = subprocess.run([sys.executable, str(judge), *kind, "--verbose"], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "HBMLEDGER": str(COMMAND)}, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
