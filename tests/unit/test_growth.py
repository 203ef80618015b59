"""Whoever reads what somebody else wrote takes time and memory in proportion to its length.

Every reader is in ``tests/support/outside_readers``; the last test here finds those that are not.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
import re
import sys
import time
import tracemalloc
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType

import pytest

import ray_sentinel
import ray_sentinel_plugins
from ray_sentinel.errors import SentinelError
from tests.support.hostile_text import LARGE, numbered, texts
from tests.support.outside_readers import READERS, Reader

FLOOR = 0.05
"""Seconds; growth to less than this is not judged."""
TIMES = 8.0
"""As long, at most, for four times the text."""
AGAIN = 4
"""How often both are measured again where it seems to take longer: the least of several is what the
reader takes, the rest what other programs do to the CPU's caches meanwhile."""

by_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


@pytest.fixture(autouse=True)
def only_what_the_reader_does() -> Iterator[None]:
    """Without collections: each looks through all that the tests before have left."""
    gc.disable()
    yield
    gc.enable()


def seconds(reader: Reader, data: bytes) -> float:
    """Of CPU time; nothing but the package's own errors may leave the reader."""
    began = time.process_time()
    try:
        reader.read(data)
    except (SentinelError, *reader.errors):
        pass
    return time.process_time() - began


def too_slow(reader: Reader, quarter: bytes, whole: bytes) -> str:
    """Why the reader takes too long for these, or nothing."""

    def is_slow() -> bool:
        return large > reader.seconds or (large > FLOOR and large > TIMES * small)

    small = seconds(reader, quarter)
    if small < FLOOR / 16:
        return ""  # were it to grow with the square, it would end up below the floor
    large = seconds(reader, whole)
    if small > FLOOR:
        small = min(small, seconds(reader, quarter))
    for _ in range(AGAIN):
        if not is_slow():
            return ""
        small = min(small, seconds(reader, quarter))
        large = min(large, seconds(reader, whole))
    told = f"{small:.3f} s for {len(quarter)} bytes, {large:.3f} s for {len(whole)}"
    return told if is_slow() else ""


@by_reader
@pytest.mark.timeout(120)
def test_time_grows_with_the_text(reader: Reader) -> None:
    large = min(reader.most, LARGE)
    quarters = texts(reader.front, reader.words, large // 4)
    wholes = texts(reader.front, reader.words, large)
    slow = {
        name: why
        for (name, quarter), (_, whole) in zip(quarters, wholes, strict=True)
        if (why := too_slow(reader, quarter, whole))
    }
    assert not slow


@by_reader
def test_memory_grows_with_the_text(reader: Reader) -> None:
    size = min(reader.most, LARGE // 4)
    text = reader.front + numbered(reader.words, size)
    seconds(reader, text)  # what is loaded and compiled once is not counted
    tracemalloc.start()
    try:
        seconds(reader, text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (1 << 20) + reader.memory * size


@by_reader
def test_numbers_without_an_end_are_no_numbers(reader: Reader) -> None:
    for word in reader.words:
        for found in re.finditer(rb"\d+", word):
            for number in (b"9" * 5000, "²".encode()):
                line = word[: found.start()] + number + word[found.end() :]
                seconds(reader, reader.front + line + b"\n")


ROOMS = (
    "ray_sentinel.evidence.",
    "ray_sentinel.logs.",
    "ray_sentinel.store.",
    "ray_sentinel_plugins.",
)
TEXT = re.compile(r"(?:(?:Iterable|Sequence|list)\[)?(?:bytes|str|memoryview)\]?(?: \| \w+)?")
NO_READERS = {
    "our own words, or the user's own": (
        "evidence.logs.causes.tier",
        "evidence.logs.answer.summary",
        "evidence.node.judge.checkpoint_health",
        "evidence.node.judge.trap_of",
        "evidence.stacks.frames.blocks.is_conditional",
        "evidence.stacks.frames.blocks.is_loop",
        "evidence.stacks.frames.blocks.same_statement",
        "evidence.stacks.compare.function_of",
        "evidence.stacks.readers.formats.named",
        "logs.salvage.damage_text",
        "store.prometheus.binary.find_prometheus",
        "store.prometheus.binary.probe",
        "store.prometheus.binary.version_of",
        "store.open.open_source",
        "store.prometheus.ports.answers",
        "store.prometheus.scrape_config.operator_resource",
        "store.prometheus.scrape_config.pod_monitor",
        "store.prometheus.scrape_config.scrape_target",
        "store.prometheus.scrape_config.target_groups",
        "store.prometheus.scrape_config.targets_file",
        "store.prometheus.readonly.scratch_folder",
        "store.prometheus.targets.ask",
        "store.windows.parse_window",
        "_host.dstate.read_task",
        "_kernel_log.patterns.row",
    ),
    "writes text": (
        "evidence.sentences.called_otherwise",
        "evidence.sentences.has_not_come",
        "store.alerts_and_dashboards.dashboard",
        "store.alerts_and_dashboards.dashboard_file",
        "store.alerts_and_dashboards.prometheus_rule",
    ),
    "one search in a text that its caller bounds": (
        "evidence.checkpoints.is_tracker",
        "evidence.event_files.state.metric_name",
        "evidence.stacks.readers.prefixes.is_folded",
        "logs.names.is_host",
        "logs.reading.is_binary",
        "store.history.source.lenient",
        "_host.cgroup.below",
    ),
}


def functions_of_text() -> Iterator[tuple[str, FunctionType]]:
    """Every public function of these rooms whose first parameter is text by its annotation."""
    for package in (ray_sentinel, ray_sentinel_plugins):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(ROOMS) or found.name.endswith("__main__"):
                continue
            for name, function in vars(importlib.import_module(found.name)).items():
                if name.startswith("_") or not inspect.isfunction(function):
                    continue
                first = next(iter(inspect.signature(function).parameters.values()), None)
                if (
                    function.__module__ == found.name
                    and first is not None
                    and TEXT.fullmatch(str(first.annotation))
                ):
                    yield f"{found.name}.{name}", function


def called_by(readers: tuple[Reader, ...]) -> set[CodeType]:
    """The code that reads a short text of each reader's own words, and its first fixture."""
    called: set[CodeType] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(ROOMS):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()  # what answers from memory calls nothing

    def notice(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    for reader in readers:
        samples = [
            reader.front + numbered(reader.words, min(reader.most, 2048)),
            reader.front + b"\n".join(reader.words),
        ]
        samples += [sample[-20_000:] for sample in reader.samples()[:1]]
        before = sys.getprofile()
        sys.setprofile(notice)
        try:
            for sample in samples:
                seconds(reader, sample)
        finally:
            sys.setprofile(before)
    return called


def short(name: str) -> str:
    return re.sub(r"^ray_sentinel(_plugins)?\.", "", name)


def test_every_reader_of_outside_text_is_in_the_table() -> None:
    called = called_by(READERS)
    functions = list(functions_of_text())
    missing = {short(name) for name, function in functions if function.__code__ not in called}
    excepted = {name for names in NO_READERS.values() for name in names}
    assert missing - excepted == set(), "put these into tests/support/outside_readers"
    assert excepted - {short(name) for name, _ in functions} == set(), "these are no more"
