"""`python -m ingest.native`: build the compiled helpers in a checkout."""

from __future__ import annotations

from ingest.native import build

print("\n".join(map(str, build())) or "no compiler found: the Python implementations are used")
