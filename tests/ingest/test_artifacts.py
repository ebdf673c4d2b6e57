"""Decompression: every codec, several members, cut and hostile data."""

import bz2
import gzip
import lzma
import random
from pathlib import Path

import pytest
import zstandard

from ingest.artifacts import Limits, damage, open_stream, skip
from ingest.errors import LedgerError

TEXT = b"".join(b"line %d of a log %d\n" % (i, random.Random(i).randrange(10**9)) for i in range(20_000))
CODECS = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress, "log": bytes,
}


@pytest.mark.parametrize("suffix", CODECS)
def test_every_codec_by_magic_and_several_members(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / "no_suffix"
    file.write_bytes(CODECS[suffix](TEXT) + CODECS[suffix](b"more\n"))
    with open_stream(file) as stream:
        assert stream.read() == TEXT + b"more\n"
        assert damage(stream) is None


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_cut_data_gives_what_decodes_and_says_so(tmp_path: Path, suffix: str) -> None:
    whole = CODECS[suffix](TEXT)
    file = tmp_path / "cut"
    file.write_bytes(whole[: len(whole) * 9 // 10])
    with open_stream(file) as stream:
        read = stream.read()
        assert TEXT.startswith(read)
        assert len(read) < len(TEXT)
        assert "cut off" in str(damage(stream))


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_garbage_after_the_data_is_damage_and_padding_is_not(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / "padded"
    file.write_bytes(CODECS[suffix](TEXT) + bytes(5000))
    with open_stream(file) as stream:
        assert stream.read() == TEXT
        assert damage(stream) is None
    file.write_bytes(CODECS[suffix](TEXT) + b"garbage of some length")
    with open_stream(file) as stream:
        assert stream.read() == TEXT
        assert "broken" in str(damage(stream))


def test_skip_works_on_compressed_and_plain(tmp_path: Path) -> None:
    for suffix in CODECS:
        file = tmp_path / suffix
        file.write_bytes(CODECS[suffix](TEXT))
        with open_stream(file) as stream:
            skip(stream, 300_001)
            assert stream.read(50) == TEXT[300_001:300_051]


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_a_bomb_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / "bomb"
    file.write_bytes(CODECS[suffix](bytes(20_000_000)))
    with open_stream(file, Limits(ratio=200, ratio_from_bytes=1_000_000)) as stream, pytest.raises(LedgerError, match="bomb"):
        skip(stream, 20_000_000)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be read"):
        open_stream(tmp_path / "absent")
