"""Counts of parameters: a model-parallel rank's total in three layouts, and the inventory of gradient buckets.

Ranks glue these lines; each count is found by itself. A bucket is a record of several lines, its parameters' names.
"""

from __future__ import annotations

import re

from ingest.parsers.log.records import Context, Fed, LogLine

_COUNT = re.compile(
    r"number of parameters on (?:model parallel rank (?P<old>\d+)|"
    r"\(tensor(?P<middle>, [\w, ]*?)?, pipeline\) model parallel rank "
    r"\((?P<tp>\d+)(?:, (?P<gtp>\d+))?, (?P<pp>\d+)\)): (?P<count>\d+)(?=\D|$)")
_BUCKET = re.compile(
    r"Params for bucket (?P<index>\d+) \((?P<count>\d+) elements"
    r"(?:, (?P<padded>\d+) padded size)?(?P<more>(?:[^()]|\(s\))*)\):?")
_BUCKETS = re.compile(r"Number of buckets for gradient all-reduce / reduce-scatter: (\d+)")
_NAME = re.compile(r"^\s*(?P<name>\w+(?:\.\w+)+)(?: \((?P<note>[^)]*)\))?\s*$")


class ParameterCounts:
    """Rows of `parameter_counts`."""

    literals = ("number of parameters on ", "Params for bucket ", "Number of buckets for gradient")

    def take(self, line: LogLine, context: Context) -> bool:
        """Every count of the line; a bucket opens a group."""
        if number := _BUCKETS.search(line.text):
            context.facts["buckets"] = number[1]
        counts = list(_COUNT.finditer(line.text))
        for match in counts:
            context.emit("parameter_counts", line, **_where(match), parameters=int(match["count"]),
                         other={"gtp_weight_remat_rank": match["gtp"]} if match["gtp"] else None)
        if bucket := _BUCKET.search(line.text):
            context.open(Bucket(line, bucket))
            return True
        return bool(counts)


def _where(match: re.Match[str]) -> dict[str, int]:
    if match["old"]:
        return {"model_parallel_rank": int(match["old"])}
    return {"tensor_rank": int(match["tp"]), "pipeline_rank": int(match["pp"])}


class Bucket:
    """One bucket and the names that follow it, of the same rank."""

    def __init__(self, line: LogLine, match: re.Match[str]) -> None:
        self.line, self.match = line, match
        self.names: list[str] = []
        self.foreign = 0

    def feed(self, line: LogLine, context: Context) -> Fed:
        """Names are taken; another bucket or a few strange lines close it."""
        if match := _NAME.match(line.text):
            self.names.append(match["name"])
            return Fed.TAKEN
        self.foreign += 1
        same = (line.rank, line.rank_label) == (self.line.rank, self.line.rank_label)
        if same or self.foreign > 3 or _BUCKET.search(line.text) or _BUCKETS.search(line.text):
            self.finish(context)
            return Fed.CLOSED_BEFORE
        return Fed.FOREIGN

    def finish(self, context: Context) -> None:
        """Emit the bucket."""
        padded, more = self.match["padded"], self.match["more"].strip(", ")
        other = {"note": more} if more else {}
        if extra := re.match(r"(\d+) param\(s\) with extra main_grads", more):
            other["extra_main_grads"] = extra[1]
        if buckets := context.facts.get("buckets"):
            other["buckets"] = buckets
        context.emit("parameter_counts", self.line, rank=self.line.rank, bucket=int(self.match["index"]), parameters=int(self.match["count"]),
                     padded_elements=int(padded) if padded else None, names=self.names or None, other=other or None)
