"""Readers of logs, and of texts that may hold secrets."""

from __future__ import annotations

import functools
from typing import Any

from ray_sentinel.diagnose import logtext
from ray_sentinel.evidence.last_lines import telling_line
from ray_sentinel.evidence.logs.errors import watchdog
from ray_sentinel.evidence.logs.errors.event_objects import machine_of
from ray_sentinel.evidence.logs.errors.exits import read_row, read_table
from ray_sentinel.evidence.logs.lines import times
from ray_sentinel.evidence.logs.lines.lines import named_process, parse_line
from ray_sentinel.evidence.logs.lines.tracebacks import (
    logged_exception,
    parse_exception,
    read_traceback,
)
from ray_sentinel.evidence.logs.records import LogFile
from ray_sentinel.evidence.logs.scan import Scanner, listed_workers, read_header
from ray_sentinel.evidence.logs.training.bare_steps import parse_any_step
from ray_sentinel.evidence.logs.training.steps import parse_step
from ray_sentinel.evidence.node import transport
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.follow import view_line
from ray_sentinel.masking import mask, mask_argv, mask_tail
from ray_sentinel.model.triage import LogLine
from ray_sentinel.monitor.jobs import read_progress
from ray_sentinel.progress.discovery import train_log
from ray_sentinel.text import one_line
from ray_sentinel_plugins import train_logs
from tests.support.outside_readers.reader import Reader, of_lines, of_text
from tests.support.outside_readers.samples import planted, printed
from tests.support.outside_readers.words import ARGUMENTS, LOG_WORDS, SECRETS


@functools.lru_cache(maxsize=1)
def _catalogue() -> Any:
    return load_catalogue()


def _scan(data: bytes, kind: str = "rank") -> object:
    file = LogFile(label="train.log", kind=kind, size=len(data))
    scanner = Scanner(file, 0, _catalogue(), 2025)
    whole = data if data.endswith(b"\n") else data + b"\n"
    scanner.feed(whole, 0, len(whole))
    scanner.sample(whole, 0)
    scanner.ends(whole[: 256 << 10], whole[-(256 << 10) :], max(0, len(whole) - (256 << 10)))
    return scanner.result()


def _main_log(data: bytes) -> object:
    main = logtext.MainLog("train.log", 2025)
    lines = data.decode("utf-8", "replace").split("\n")
    main.feed(lines)
    logtext.init_waves(lines, 2025)
    logtext.count_lines(lines)
    logtext.worker_facts("w", lines)
    logtext.exporter_facts("w", "h", lines)
    logtext.prometheus_facts("w", lines)
    return main.as_facts()


def _whole_traceback(data: bytes) -> object:
    lines = [parse_line(line[:6000]) for line in data.decode("utf-8", "replace").split("\n")]
    return read_traceback(lines, 0)


def _exit_table(data: bytes) -> object:
    lines = [parse_line(line[:6000]) for line in data.decode("utf-8", "replace").split("\n")]
    return read_table(lines, 2025)


def _watchdogs(data: bytes) -> object:
    lines = data.decode("utf-8", "replace").split("\n")
    works = [watchdog.read_work(line[:6000], None) for line in lines]
    return watchdog.laggards([work for work in works if work is not None])


def _transport(data: bytes) -> object:
    lines = data.decode("utf-8", "replace").split("\n")
    said = (LogLine(file="f", line=None, text=one_line(line, 400)) for line in lines)
    return transport.read_transport(said)


LOGS = (
    Reader(
        name="logs: a whole file",
        made=printed,
        read=_scan,
        words=(*LOG_WORDS[:2], *LOG_WORDS[4:9], LOG_WORDS[17]),
        most=64 << 10,
    ),
    Reader(
        name="logs: the raylet's",
        made=printed,
        read=lambda data: _scan(data, "raylet"),
        words=LOG_WORDS[:6],
        most=64 << 10,
    ),
    Reader(name="logs: a line", made=printed, read=of_lines(parse_line), words=LOG_WORDS[4:]),
    Reader(
        name="logs: a line that is shown",
        made=printed,
        read=of_lines(lambda line: view_line(line, _catalogue())),
        words=LOG_WORDS[:8],
        most=32 << 10,
    ),
    Reader(
        name="logs: tracebacks",
        made=printed,
        read=_whole_traceback,
        front=LOG_WORDS[0] + b"\n",
        words=LOG_WORDS[:6],
        most=64 << 10,
    ),
    Reader(
        name="logs: exceptions",
        made=printed,
        read=of_lines(lambda line: (parse_exception(line), logged_exception(line))),
        words=LOG_WORDS[:6],
    ),
    Reader(
        name="logs: a rank's last lines",
        made=printed,
        read=of_text(lambda text: telling_line(text.split("\n")[-200:])),
        words=LOG_WORDS[:6],
        most=64 << 10,
    ),
    Reader(
        name="logs: which machine an event is about",
        made=printed,
        read=of_lines(machine_of),
        words=(LOG_WORDS[5], LOG_WORDS[13], LOG_WORDS[19]),
    ),
    Reader(
        name="logs: whose line it is",
        made=printed,
        read=of_lines(lambda line: (named_process(line), read_row(line, 2025, root=True))),
        words=(LOG_WORDS[5], LOG_WORDS[13], LOG_WORDS[19]),
    ),
    Reader(
        name="logs: steps",
        made=printed,
        read=of_lines(lambda line: (parse_step(line), parse_any_step(line))),
        words=LOG_WORDS[7:10],
    ),
    Reader(
        name="logs: progress of a job",
        made=printed,
        read=of_text(read_progress),
        words=LOG_WORDS[5:10],
        most=512 << 10,
    ),
    Reader(
        name="logs: times",
        made=printed,
        read=of_lines(lambda line: times.parse_time(line, 2025)),
        words=LOG_WORDS[7:9],
    ),
    Reader(
        name="logs: the year",
        made=printed,
        read=of_text(times.find_year),
        words=LOG_WORDS[7:9],
        most=128 << 10,
    ),
    Reader(name="logs: watchdog", made=printed, read=_watchdogs, words=LOG_WORDS[10:12]),
    Reader(
        name="logs: exit table",
        made=printed,
        read=_exit_table,
        front=LOG_WORDS[14] + b"\n",
        words=LOG_WORDS[13:15],
        most=64 << 10,
    ),
    Reader(
        name="logs: header",
        made=printed,
        read=read_header,
        words=(*ARGUMENTS, LOG_WORDS[12]),
        most=256 << 10,
    ),
    Reader(name="logs: workers", made=printed, read=listed_workers, words=LOG_WORDS[19:]),
    Reader(
        name="logs: transport",
        made=printed,
        read=_transport,
        words=(
            b"NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE",
            b"via NET/Socket/0",
            b"NET/Plugin : Could not find: x",
            b"NET/OFI Selected provider is efa",
        ),
    ),
    Reader(
        name="logs: of a diagnosis",
        made=printed,
        read=_main_log,
        words=(*ARGUMENTS, *LOG_WORDS[7:9]),
    ),
    Reader(
        name="logs: node list",
        made=printed,
        read=of_text(logtext.node_list),
        words=ARGUMENTS[1:3],
        memory=4000.0,
        most=20_000,
    ),
    Reader(
        name="logs: arguments",
        made=printed,
        read=of_text(logtext.parse_arguments),
        words=ARGUMENTS[:1],
        most=20_000,
    ),
    Reader(
        name="logs: Ray Train's",
        made=printed,
        read=lambda data: train_log.parse_words(data, 7),
        words=(b'{"process": 7, "run_name": "a", "world_rank": 3, "local_rank": 1}',),
    ),
    Reader(
        name="logs: weights",
        made=printed,
        read=of_lines(train_logs.loading),
        words=(b"Loading safetensors checkpoint shards:  40%",),
    ),
    Reader(name="masking: text", made=planted, read=of_text(mask), words=SECRETS, most=32 << 10),
    Reader(
        name="masking: tail",
        made=planted,
        read=of_text(lambda text: mask_tail(text, "password=")),
        words=SECRETS[:3],
        most=32 << 10,
    ),
    Reader(
        name="masking: arguments",
        made=planted,
        read=of_text(lambda text: mask_argv(text.split(" "))),
        words=SECRETS,
        most=32 << 10,
    ),
)
