"""Whether a run passes: its findings against a severity, and whether it could be judged at all; as text, JSON, JUnit and Prometheus.

A run is judged where some rank's class is known (stable, occasional or clear) and no rank was seen near its limit in too few steps to class it,
or where an error decides it; a run that left no memory behind neither passes nor fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from analysis.database import records
from analysis.findings.model import SEVERITIES, Finding
from analysis.report.lines import clean
from analysis.rows import Overview
from ingest.errors import LedgerError

if TYPE_CHECKING:
    import duckdb

_RECENT = """
WITH named AS (
    SELECT run, COALESCE(cluster, 'default') AS cluster, MAX(ingested_at) AS ingested_at
    FROM artifacts
    WHERE status <> 'quarantined'
    GROUP BY run, COALESCE(cluster, 'default')
), counted AS (
    SELECT *, COUNT(*) OVER (PARTITION BY run) AS clusters FROM named
)
SELECT CASE WHEN clusters > 1 THEN CONCAT(cluster, '/', run) ELSE run END AS run
FROM counted
WHERE $since IS NULL OR ingested_at >= $since
ORDER BY counted.run, cluster
"""
_AGE = re.compile(r"(\d{1,6})\s*([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True, slots=True)
class Checked:
    """One run: its findings at or above the severity asked for, whether it could be judged, and its verdict's sentence."""

    run: str
    run_index: int
    judged: bool
    sentence: str
    failing: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    least_headroom_bytes: int | None


def check(found: Overview, fail_on: str) -> Checked:
    """The verdict on an overview; `fail_on` is error, warning or note."""
    worst = SEVERITIES.index(fail_on)
    failing = tuple(one for one in found.findings if SEVERITIES.index(one.severity) <= worst)
    known = any(one.near in ("stable", "occasional", "clear") for one in found.near_limit)
    hidden = any(one.kind and one.near in ("insufficient", "undetermined") for one in found.near_limit)
    left = [rank.hard_headroom_bytes for rank in found.ranks if rank.hard_headroom_bytes is not None]
    judged = bool(failing) or (known and not hidden)
    return Checked(found.run, found.run_index, judged, found.verdict.sentence, failing, found.findings, min(left, default=None))


def moment(text: str, now: datetime | None = None) -> datetime:
    """`2026-11-01`, `2026-11-01T12:00`, or an age such as 36h, 7d, 2w; UTC without a zone. Raises LedgerError."""
    if match := _AGE.fullmatch(text.strip()):
        return (now or datetime.now(UTC)).replace(tzinfo=None) - timedelta(hours=int(match[1]) * _HOURS[match[2]])
    try:
        given = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise LedgerError(f"--since is {text!r}; a date such as 2026-11-01 or an age such as 36h or 7d would fit") from error
    return given if given.tzinfo is None else given.astimezone(UTC).replace(tzinfo=None)


def runs_since(connection: duckdb.DuckDBPyConnection, since: datetime | None) -> list[str]:
    """Runs of which something was ingested since, by name; one whose name two clusters gave is `CLUSTER/RUN`."""
    return [row["run"] for row in records(connection, _RECENT, {"since": since})]


def _word(one: Checked) -> str:
    return "fails" if one.failing else "clear" if one.judged else "not judged"


def as_text(checked: Sequence[Checked]) -> str:
    """A line a run, and a line a failing finding."""
    lines = []
    for one in checked:
        lines.append(f"{_word(one):<11}{one.run}#{one.run_index}: {one.sentence}")
        lines += [f"  {finding.severity}: {finding.sentence}" + (f" > {finding.evidence[0]}" if finding.evidence else "") for finding in one.failing]
    return clean("\n".join(lines)) + "\n" if lines else ""


def as_plain(one: Checked) -> dict[str, Any]:
    """Plain values for JSON."""
    return {"run": one.run, "run_index": one.run_index, "result": _word(one).replace(" ", "_"), "sentence": one.sentence,
            "least_headroom_bytes": one.least_headroom_bytes, "findings": [asdict(finding) for finding in one.failing]}


def as_junit(checked: Sequence[Checked]) -> str:
    """JUnit XML: a test case a run; a finding that fails is a failure, a run that could not be judged an error."""
    failed = sum(bool(one.failing) for one in checked)
    unjudged = sum(not one.judged for one in checked)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<testsuite name="hbmledger" tests="{len(checked)}" failures="{failed}" errors="{unjudged}">']
    for one in checked:
        lines.append(f'  <testcase classname="hbmledger.check" name={_quoted(f"{one.run}#{one.run_index}")}>')
        lines += [f"    <failure type={_quoted(each.id)} message={_quoted(each.sentence)}>{_places(each)}</failure>" for each in one.failing]
        lines += [] if one.judged else [f"    <error type=\"not_judged\" message={_quoted(one.sentence)}/>"]
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>"]) + "\n"


def _quoted(text: str) -> str:
    return quoteattr(clean(text))


def _places(finding: Finding) -> str:
    return escape(clean("\n".join(map(str, finding.evidence))))


def as_prometheus(checked: Sequence[Checked]) -> str:
    """Prometheus text format (exposition format 0.0.4) for the textfile collector."""
    lines = ["# HELP hbmledger_check_result 0 clear, 1 fails, 2 could not be judged", "# TYPE hbmledger_check_result gauge"]
    lines += [f"hbmledger_check_result{_labels(one)} {1 if one.failing else 0 if one.judged else 2}" for one in checked]
    lines += ["# HELP hbmledger_findings findings of a run by severity", "# TYPE hbmledger_findings gauge"]
    for one in checked:
        counted = {name: sum(each.severity == name for each in one.findings) for name in SEVERITIES}
        lines += [f"hbmledger_findings{_labels(one, severity=name)} {count}" for name, count in counted.items()]
    lines += ["# HELP hbmledger_least_headroom_bytes the least hard headroom of a rank", "# TYPE hbmledger_least_headroom_bytes gauge"]
    lines += [f"hbmledger_least_headroom_bytes{_labels(one)} {one.least_headroom_bytes}" for one in checked if one.least_headroom_bytes is not None]
    return "\n".join(lines) + "\n"


def _labels(one: Checked, **more: str) -> str:
    pairs = {"run": one.run, "run_index": str(one.run_index), **more}
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items())
    return f"{{{told}}}"


def _escaped(value: str) -> str:
    return clean(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
