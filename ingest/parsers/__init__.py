"""The visible list of parsers: one source a file, asked in this order; the log parser comes last and reads any text."""

from __future__ import annotations

from ingest.parsers.base import Parser
from ingest.parsers.log import MEGATRON_LOG
from ingest.parsers.memory_stats import MEMORY_STATS
from ingest.parsers.metrics import METRICS
from ingest.parsers.nccl_env import ENVIRONMENT
from ingest.parsers.snapshot import SNAPSHOT
from ingest.parsers.tensorboard import TENSORBOARD
from ingest.parsers.tokens_per_expert import TOKENS_PER_EXPERT

PARSERS: tuple[Parser, ...] = (SNAPSHOT, TENSORBOARD, TOKENS_PER_EXPERT, MEMORY_STATS, ENVIRONMENT, METRICS, MEGATRON_LOG)

from ingest.parsers.reading import ParsedFile, parse_file  # noqa: E402 - reads the list above

__all__ = ["PARSERS", "ParsedFile", "Parser", "parse_file"]
