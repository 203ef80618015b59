"""Text that somebody writes who wants its reader to take long, to grow, or to fail.

Time that grows with the square is told by four times the text: it takes sixteen times as long.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.coordinator.gathering.ras_witness import RasWitness
from ray_sentinel.capture.ras import RasPolls
from ray_sentinel.capture.ras_process import SMALL, explain_in_process
from ray_sentinel.cli.commands.collect import settings
from ray_sentinel.cli.rank_table import rank_table
from ray_sentinel.collect.protocol import FrameError, Frames
from ray_sentinel.config import load
from ray_sentinel.doctor import yaml_text
from ray_sentinel.engine.actions import AskRas
from ray_sentinel.errors import ConfigError, InputError, SentinelError
from ray_sentinel.evidence.checkpoints import FolderEntry, read_listing
from ray_sentinel.evidence.event_files.records import masked, scan
from ray_sentinel.evidence.flight_recorder.load import load as load_dump
from ray_sentinel.evidence.logs.errors.catalogue import WordSearch
from ray_sentinel.evidence.nccl_ras.load import read as read_ras
from ray_sentinel.evidence.node import nvidia_smi
from ray_sentinel.evidence.stacks.readers import pyspy, pyspy_json
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.discovery.live_environ import find_symbol
from ray_sentinel.progress.discovery.train_log import parse_words
from ray_sentinel.report import series
from ray_sentinel.store.event_files.config import parameters
from ray_sentinel.store.incident_window import incident_window
from ray_sentinel.store.joblogs import saved_totals
from tests.support.ras_sim.agents import PollingAgents

TIMES = 9.0
"""As long, at most, for four times the text."""
FLOOR = 0.1
"""Seconds; what takes less is not looked at."""
PROCESS = ProcessId("h", 7)


def headers_in_headers(size: int) -> bytes:
    """Headers whose checksums are right, each of data that reaches to the end and is wrong."""
    parts, at = [], 0
    while at < size - 64:
        length = (size - at - 16).to_bytes(8, "little")
        parts.append(length + masked(length).to_bytes(4, "little"))
        at += 12
    return b"".join(parts).ljust(size, b"\0")


def one_table_again_and_again(size: int) -> bytes:
    """An ELF file whose section headers are all of one large table of symbols."""
    count = min(size // 128, 60_000)
    header = bytearray(b"\x7fELF\x02\x01".ljust(64, b"\0"))
    struct.pack_into("<Q", header, 40, 64)
    struct.pack_into("<HH", header, 58, 64, count)
    symbols = bytes(size // 48 * 24)
    place = (64 + 64 * count, len(symbols))
    section = struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, *place, 0, 0, 0, 24)
    return bytes(header) + section * count + symbols


def checkpoints(size: int) -> list[FolderEntry]:
    return [
        FolderEntry(path=f"run/checkpoint-{n}/model.safetensors", size=n, modified=float(n))
        for n in range(size // 16)
    ]


CASES: dict[str, tuple[Callable[[int], object], Callable[..., object], int]] = {
    "py-spy: processes without threads": (
        lambda size: "Process 7: python\n" * (size // 18),
        lambda text: pyspy.parse(text, PROCESS),
        64 << 10,
    ),
    "logs: a word again and again on one line": (
        lambda size: b"error " * (size // 6),
        lambda text: WordSearch([b"error"]).lines(text, len(text), 20_000_000),
        1 << 20,
    ),
    "RAS: brackets that close none": (
        lambda size: b'{"a":' + b"{" * (size // 2) + b"]" * (size // 2),
        lambda data: refused(read_ras, data),
        128 << 10,
    ),
    "event files: headers in headers": (headers_in_headers, scan, 1 << 20),
    "ELF: a table of symbols again and again": (one_table_again_and_again, find_symbol, 256 << 10),
    "checkpoints: thousands in a folder": (checkpoints, read_listing, 128 << 10),
    "YAML: one key again and again": (
        lambda size: "a: 20:30\n" * (size // 9),
        yaml_text.read,
        64 << 10,
    ),
}


def refused(read: Callable[[bytes], object], data: bytes) -> object:
    try:
        return read(data)
    except SentinelError as error:
        return error


def seconds(read: Callable[..., object], text: object) -> float:
    took = []
    for _ in range(2):
        began = time.thread_time()
        read(text)
        took.append(time.thread_time() - began)
        if took[-1] < FLOOR:
            break
    return min(took)


@pytest.mark.parametrize("name", CASES)
def test_time_grows_with_the_text(name: str) -> None:
    make, read, size = CASES[name]
    long = seconds(read, make(size))
    assert long < FLOOR or long < TIMES * seconds(read, make(size // 4))
    assert long < 5


def test_numbers_without_an_end_are_no_numbers() -> None:
    digits = b"9" * 100_000
    for line in (b"Process %b on node a managing GPUs 1", b"#%b-1 (ab) DEAD", b"(%b job processes"):
        refused(read_ras, b"NCCL version 2.28.9 x\n" + line % digits)


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_deep_json_is_refused_in_plain_words(opening: bytes, tmp_path: Path) -> None:
    deep = opening * 100_000
    refused(read_ras, b'{"communicators": ' + deep)
    assert pyspy_json.parse('[{"frames": ' + deep.decode(), PROCESS)[0].error
    with pytest.raises(InputError):
        load_dump(b'{"entries": ' + deep)
    with pytest.raises(InputError, match="JSON"):
        rank_table(str(_file(tmp_path, "status.json", deep)))
    assert parse_words(b'{"process": 7, "x": ' + deep, 7) is None
    assert parameters("args", deep.decode()) == {}
    assert series.read({series.FILE: b'{"x": ' + deep}) is None
    settings([f"a={deep.decode()}"])
    _file(tmp_path, "job/incidents/one/incident.json", deep)
    with pytest.raises(InputError, match="no incident"):
        incident_window(tmp_path / "job", "0001")
    _file(tmp_path, "job/checkpoint-1/trainer_state.json", b'{"x": ' + deep)
    assert saved_totals(tmp_path / "job") == ()


def test_a_deep_message_of_a_collector_ends_its_connection() -> None:
    body = b"\x91" * 100_000
    frames: Frames[object] = Frames(object)
    with pytest.raises(FrameError):
        list(frames.feed(len(body).to_bytes(4, "big") + body))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"a = " + b"[" * 100_000, "deep"),
        (b".".join([b"a"] * 100_000) + b" = 1", "dots"),
        (b"[" + b".".join([b"a"] * 100_000) + b"]", "dots"),
        (b"a = " + b"9" * 5000, "TOML"),
    ],
)
@pytest.mark.timeout(20)
def test_a_configuration_that_would_take_hours_is_refused(
    text: bytes, word: str, tmp_path: Path
) -> None:
    path = _file(tmp_path, "sentinel.toml", text)
    with pytest.raises(ConfigError, match=word) as caught:
        load(path)
    assert str(path) in str(caught.value)
    with pytest.raises(ConfigError, match=word):
        load_catalogue([path])


def test_nvidia_smis_answer_declares_no_entities() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "&b;&b;">]><a>&c;</a>'
    with pytest.raises(InputError, match="nvidia_smi_log"):
        nvidia_smi.parse(bomb)


HOSTILE = b"Communicators... (0.1s)\n" + b"1 " * (8 << 20)


def test_a_large_answer_of_ras_costs_a_child_and_ends_at_its_deadline() -> None:
    with pytest.raises(
        InputError, match=r"RAS answered \(17 MB\): it was not read .* within 0.5 s"
    ):
        explain_in_process({"poll": HOSTILE}, seconds=0.5)


def test_a_large_answer_of_ras_is_explained_as_a_small_one() -> None:
    dead = Path(__file__).parents[1] / "fixtures/nccl_ras/dead.txt"
    small = explain_in_process({"poll": dead.read_bytes()})
    large = explain_in_process({"poll": dead.read_bytes() + b"\n" * SMALL}, seconds=60.0)
    assert small.culprits
    assert msgspec.structs.replace(large, problems=()) == msgspec.structs.replace(
        small, problems=()
    )


def test_answers_beyond_the_bound_are_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_sentinel.actors.coordinator.gathering.ras_witness.MOST_KEPT", 1000)
    answer = RasPolls(polls=(b"hello", b"x" * 2000, b"y"))
    event = RasWitness(PollingAgents(lambda: answer))(AskRas(incident="1", ranks=()))
    assert event is not None
    assert any("2 of 3 answers are left out" in problem for problem in event.problems)
