"""The report as one self-contained HTML file: no script, no network, pictures as SVG drawn here, text of artifacts escaped by the template."""

from __future__ import annotations

from analysis.report.html.page import as_html
from analysis.report.html.redaction import hosts_of, redacted

__all__ = ["as_html", "hosts_of", "redacted"]
