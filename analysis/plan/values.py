"""Whether the value of a changed setting is one that Megatron takes: a word of its own list, true or false for a switch.

The ledger reads a dump, which Megatron has checked before it printed it, and counts a word that it does not know as the default. What a
person types was checked by nobody: `recompute_granularity=ful` would be answered as no recomputation at all, `use_distributed_optimizer=no` as
yes. The words: `analysis.expected.words`. Only what was changed is asked, not the run's own.
"""

from __future__ import annotations

from analysis.expected.words import refuse_words
from analysis.theory.arguments import Args
from ingest.errors import LedgerError


def refuse_misspelt(args: Args, changes: Args) -> None:
    """Raise LedgerError for the first change whose value Megatron would not take. `args` are the run's, both native."""
    refuse_words(changes)
    for name, value in changes.items():
        if isinstance(args.get(name), bool) and isinstance(value, str):
            raise LedgerError(f"argument {name} is {value!r:.60}; true or false would fit")
