"""Packed logs cost bounded memory and time, whatever they unpack to."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.errors import InputError
from ray_sentinel.logs import unpacking
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.reading import compression, open_log
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.logs.unpacking import READ_ERRORS
from tests.support.parts import require_module

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
LINE = b"2026-01-02 03:04:05 INFO waiting for the next batch\n"


def zst(data: bytes) -> bytes:
    return bytes(require_module(ZSTD).compress(data, level=3))


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 9)


PACKERS = [gz, bz2.compress, lzma.compress, zst]


@pytest.mark.parametrize("pack", PACKERS)
def test_what_unpacks_to_too_much_is_read_in_part_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(unpacking, "LEAST", 4 << 20)
    error = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
    one = pack(LINE * ((2 << 20) // len(LINE)))
    path = tmp_path / "rank_0.log"
    path.write_bytes(pack(error) + one * 64)
    assert path.stat().st_size < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    triage = triage_path(tmp_path, load_catalogue())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "KiB"
    said = repr(triage)
    assert "unpacks to more than" in said
    assert "unpack it by hand" in said


@pytest.mark.parametrize("pack", PACKERS)
def test_all_streams_of_a_packed_file_are_read(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "log"
    data = [LINE * 5000, b"one\n", b"", LINE * 3]
    path.write_bytes(b"".join(map(pack, data)))
    with open_log(path, compression(path)) as file:
        assert file.read(-1) == b"".join(data)
        assert file.seek(len(LINE)) == len(LINE)
        assert file.read(len(LINE)) == LINE


def test_an_xz_file_is_read_whole_with_its_padding_and_a_torn_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log.xz"
    packed = lzma.compress(LINE * 100)
    path.write_bytes(packed + b"\0" * 8 + packed + b"\0" * 4)
    with open_log(path, ".xz") as file:
        assert file.read(-1) == LINE * 200
    path.write_bytes(packed[:-20])
    with open_log(path, ".xz") as file, pytest.raises(READ_ERRORS):
        file.read(-1)


@pytest.mark.parametrize("damage", ["torn", "broken"])
def test_a_damaged_zst_file_is_read_up_to_there_and_said(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log.zst"
    noise = random.Random(7).randbytes(1 << 20)
    packed = bytearray(zst(noise))
    if damage == "torn":
        del packed[-(len(packed) // 4) :]
    else:
        packed += b"\x28\xb5\x2f\xfd" + b"\xff" * 40
    path.write_bytes(bytes(packed))
    with open_log(path, ".zst") as file:
        assert file.read(1000) == noise[:1000]
        with pytest.raises(READ_ERRORS):
            file.read(2 << 20)


def test_a_zst_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    zstd = require_module(ZSTD)
    path = tmp_path / "log.zst"
    options = {zstd.CompressionParameter.window_log: 30}
    packer = zstd.ZstdCompressor(options=options)
    path.write_bytes(packer.compress(LINE * 100) + packer.flush())
    with open_log(path, ".zst") as file, pytest.raises(READ_ERRORS, match=r"[Mm]emory"):
        file.read(10)


def test_a_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 512 << 20, "mode": lzma.MODE_FAST,
                "mf": lzma.MF_HC3, "nice_len": 3, "depth": 1}]  # fmt: skip
    head = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=filters)
    path.write_bytes(head.compress(LINE) + head.flush())
    with open_log(path, ".xz") as file, pytest.raises(READ_ERRORS, match=r"[Mm]emory"):
        file.read(10)


def test_the_limit_grows_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "LEAST", 10)
    path = tmp_path / "log.gz"
    path.write_bytes(gz(LINE * 100))
    with open_log(path, ".gz") as file:
        assert file.read(-1) == LINE * 100


def test_zstd_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    monkeypatch.setitem(sys.modules, ZSTD, None)
    with pytest.raises(InputError, match=r"pip install backports\.zstd"):
        open_log(path, ".zst")
