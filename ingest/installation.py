"""What is installed: the packages that this program stands on with their versions, and which compiled readers are there.

`hbmledger doctor` and the app's page Settings tell the same.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("hbmledger", "duckdb", "deltalake", "pyarrow", "streamlit", "altair", "msgspec", "isal", "zstandard")
_COMPILED = {"log_scan": "logs", "snapshot_scan": "snapshots"}


def versions() -> dict[str, str | None]:
    """The version of each package, null where it is not installed."""
    return {package: _version(package) for package in PACKAGES}


def compiled() -> str:
    """Which compiled readers are there, in words."""
    from ingest.native import library

    there = [what for name, what in _COMPILED.items() if library(name) is not None]
    return f"of {' and '.join(there)}" if there else "none: the Python readers are used"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
