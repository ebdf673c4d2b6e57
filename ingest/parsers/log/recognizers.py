"""The visible list of what the log parser recognises: one file a kind of record."""

from __future__ import annotations

from ingest.parsers.log.arguments import ArgumentDumps, CommandLines, ConfigReprs
from ingest.parsers.log.device_tables import Tables
from ingest.parsers.log.events import JobEvents
from ingest.parsers.log.frameworks import Frameworks
from ingest.parsers.log.iterations import IterationLines
from ingest.parsers.log.memory import MemoryLines
from ingest.parsers.log.nccl import NcclLines
from ingest.parsers.log.nccl_env import EnvironmentLines
from ingest.parsers.log.oom import OutOfMemory
from ingest.parsers.log.parameters import ParameterCounts
from ingest.parsers.log.phases import PhaseLines
from ingest.parsers.log.records import Recognizer
from ingest.parsers.log.shares import MemoryShares
from ingest.parsers.log.smi_csv import SmiCsv
from ingest.parsers.log.summaries import Summaries
from ingest.parsers.log.theory import TheoryBlocks
from ingest.parsers.log.world import WorldLines

RECOGNIZERS: tuple[Recognizer, ...] = (
    MemoryLines(), IterationLines(), TheoryBlocks(), ParameterCounts(), WorldLines(), ArgumentDumps(), ConfigReprs(), CommandLines(),
    OutOfMemory(), JobEvents(), PhaseLines(), Summaries(), Tables(), SmiCsv(), NcclLines(), EnvironmentLines(),
    Frameworks(), MemoryShares(),
)
