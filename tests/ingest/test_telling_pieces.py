"""Of a source's pieces only those that tell where it stands are kept: folded they say what all of them say, however they are read in parts."""

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.lake import _folded, _telling

BEGIN = datetime(2026, 11, 1)
NAMES = st.sampled_from(["a", "b", "c"])
PIECES = st.lists(st.fixed_dictionaries({
    "source": NAMES, "path": NAMES, "prefix_bytes": st.one_of(st.none(), st.integers(0, 5)), "prefix_hash": NAMES, "end_bytes": st.integers(0, 9),
    "status": st.sampled_from(["closed", "tail", "quarantined"]), "parser": NAMES,
    "state": st.sampled_from([None, '{"seam_bytes": 1, "seam_hash": "x", "parser": "1"}', '{"seam_bytes": 2, "heads": {"64": "y"}}']),
}), max_size=20)
SCHEMA = pa.schema([(name, pa.string()) for name in ("source", "path", "run", "cluster", "prefix_hash", "status", "state", "parser")]
                   + [("prefix_bytes", pa.int64()), ("end_bytes", pa.int64()), ("ingested_at", pa.timestamp("us"))])


@settings(deadline=None)
@given(pieces=PIECES, cut=st.integers(0, 20))
def test_the_telling_pieces_say_what_all_say(pieces: list[dict[str, Any]], cut: int) -> None:
    for number, piece in enumerate(pieces):
        piece |= {"run": piece["source"], "cluster": "default", "ingested_at": BEGIN + timedelta(seconds=number // 2)}
    whole = pa.Table.from_pylist(pieces, SCHEMA)
    telling = _telling(pa.concat_tables([_telling(whole.slice(0, cut)), whole.slice(cut)]))
    assert telling.num_rows <= 6 * len({piece["source"] for piece in pieces})
    for source in {piece["source"] for piece in pieces}:
        every, told = ([piece for piece in rows if piece["source"] == source] for rows in (pieces, telling.to_pylist()))
        assert _folded(told) == _folded(every)
