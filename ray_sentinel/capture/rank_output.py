"""The last lines that ranks, actors and drivers wrote to their standard output and error, also of
those that have ended.

The files that a process has open as descriptors 1 and 2 are noted while it lives, so that they are
found when it has ended. Only regular files of the process's own user are read (``evidence_file``):
reading from a pipe or a terminal would take the lines away from their reader. Where Ray keeps a
worker's output itself, the file is found by its name.

The files may be on a file system that hangs: every access runs in a thread of its own under a
deadline. What is read is masked and stripped of terminal control sequences.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.bounded import Bounded
from ray_sentinel.clock import WallHistory
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.last_lines import telling_line
from ray_sentinel.evidence_file import open_descriptor, open_evidence, uid_of
from ray_sentinel.masking import mask, mask_record, mask_tail
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import RankLog, RankOutput, Writer
from ray_sentinel.progress.last_output import OutputStream, stream_of
from ray_sentinel.progress.proc.pidfd import has_ended
from ray_sentinel.progress.proc.proc_stat import TICK, Key
from ray_sentinel.text import clean

MOST_LINES = 200
"""Most of a rank's last lines."""
MOST_BYTES = 64 << 10
"""Most bytes of one rank's lines; each gets less if many ranks of a node are asked about."""
READ_BYTES = 256 << 10
"""Bytes read from a file's end: a progress bar writes its line again and again, and only its last
form is kept."""
MASK_BEFORE = 8 << 10
"""Bytes of the text before what is kept, which show whether it begins inside a secret."""
LOOK_SECONDS = 1.0
READ_SECONDS = 3.0
"""Seconds for each batch of eight ranks, whose files are read in parallel."""
WAIT_SECONDS = 6.0
"""Seconds to wait while other requests are being answered: a machine's death ends many jobs at
once."""
_MOST_KNOWN = 4096
"""Most processes whose files are remembered; the oldest are dropped first."""
_CLOCKS = 2.0
"""Seconds by which a file system's clock may be behind."""
_STREAMS = {1: "stdout", 2: "stderr"}
_RAY_FILE = re.compile(r"worker-[0-9a-f]+-[0-9a-f]+-(?P<pid>\d+)\.(?P<kind>out|err)")
_DELETED = " (deleted)"


class _Known(msgspec.Struct):
    owner: int
    streams: dict[int, OutputStream] = {}
    """By descriptor, each with the size at which it was first seen: an earlier process may have
    written that."""
    first: float = 0.0
    last: float = 0.0
    """``first`` and ``last`` are when the process was first and last seen, in seconds of the
    monotonic clock."""

    def met(self, other: _Known) -> bool:
        """Whether both were alive at the same time."""
        return self.first <= other.last and other.first <= self.last


class _Source(msgspec.Struct, frozen=True):
    """A file to read: ``number`` is the descriptor of a process that may live, 0 for none."""

    names: str
    path: str
    owner: int
    identity: tuple[int, int] | None = None
    number: int = 0
    begun: int = 0
    """Bytes at the file's beginning that the process did not write."""


class _Tail(NamedTuple):
    text: str
    own: list[str]
    """What the process wrote since it was first seen."""


class RankOutputs:
    """Any thread may call; ``gather`` blocks for a bounded time."""

    def __init__(
        self,
        host: str,
        ray_logs: Callable[[], Path | None] = lambda: None,
        wall: WallHistory | None = None,
    ) -> None:
        """``ray_logs`` is the folder in which Ray keeps its workers' output; ``wall`` tells when
        files were written, even if the wall clock has been set since."""
        self._host, self._ray_logs = host, ray_logs
        self._wall = wall or WallHistory()
        self._known: dict[Key, _Known] = {}
        self._looks: Bounded[Key, dict[int, OutputStream]] = Bounded(LOOK_SECONDS, most=16)
        self._reads: Bounded[Key, RankOutput] = Bounded(READ_SECONDS, most=8)
        self._noting, self._reading = threading.Lock(), threading.Lock()

    def note(self, processes: Iterable[ProcessId]) -> None:
        """Record which files living processes have open; a file is examined only if it is a
        different one than before."""
        with self._noting:
            now = time.monotonic()
            changed = {}
            for process in processes:
                key = (process.pid, process.start)
                targets = self._targets(key)
                before = self._known.get(key)
                same = before and {n: s.target for n, s in before.streams.items()} == targets
                if before and targets:
                    before.last = now
                if targets and not same:
                    changed[key] = partial(self._stat_targets, key, targets)
            found, _ = self._looks.run(changed)
            for key, streams in found.items():
                owner = self._owner(key[0])
                if owner is not None and self._lives(key):
                    self._keep(key, _Known(owner, streams, now, now))
            while len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def _keep(self, key: Key, found: _Known) -> None:
        """A file that was only renamed is still the same file."""
        if (before := self._known.get(key)) is not None:
            found.first = before.first
            sizes = {s.identity: s.size for s in before.streams.values() if s.identity}
            for number, stream in found.streams.items():
                size = sizes.get(stream.identity) if stream.identity else None
                if size is not None:
                    found.streams[number] = msgspec.structs.replace(stream, size=size)
        self._known[key] = found

    def _targets(self, key: Key) -> dict[int, str]:
        found = {}
        for number in _STREAMS:
            try:
                found[number] = os.readlink(f"/proc/{key[0]}/fd/{number}")
            except OSError:
                continue  # closed, or another user's, or it ends just now
        return found

    def _stat_targets(self, key: Key, targets: dict[int, str]) -> dict[int, OutputStream]:
        return {
            number: stream_of(f"/proc/{key[0]}/fd/{number}", target)
            for number, target in targets.items()
        }

    def _owner(self, pid: int) -> int | None:
        try:
            return uid_of(pid)
        except OSError:
            return None

    def _lives(self, key: Key) -> bool:
        return not has_ended(*key)

    def gather(self, writers: Iterable[Writer], most_bytes: int) -> tuple[RankOutput, ...]:
        """The last lines of each process, or why there are none, within ``most_bytes`` in total. A
        writer without a start is the process that last had its pid."""
        by_key = {_key(writer): writer for writer in map(self._identified, writers)}
        if not self._reading.acquire(timeout=WAIT_SECONDS):
            why = "the output of others is being read"
            return tuple(self._without(writer, why) for writer in by_key.values())
        try:
            self.note(writer.process for writer in by_key.values())
            share = min(MOST_BYTES, most_bytes // max(1, len(by_key)))
            work = {key: partial(self._of, writer, share) for key, writer in by_key.items()}
            found, failures = self._reads.run(work)
        finally:
            self._reading.release()
        return tuple(
            found[key]
            if key in found
            else self._without(writer, f"its file system does not answer: {failures[key]}")
            for key, writer in by_key.items()
        )

    def _identified(self, writer: Writer) -> Writer:
        """The writer with its start time, where that is not known, as for one that Ray says has
        ended."""
        process = writer.process
        if process.start:
            return writer
        known = [(known.last, key) for key, known in self._known.copy().items()]
        mine = [(last, start) for last, (pid, start) in known if pid == process.pid]
        if not mine:
            return writer
        process = msgspec.structs.replace(process, start=max(mine)[1])
        return msgspec.structs.replace(writer, process=process)

    def _without(self, writer: Writer, why: str) -> RankOutput:
        key = _key(writer)
        log = RankLog(
            rank=writer.rank,
            label=writer.label,
            host=self._host,
            pid=key[0],
            ended=not self._lives(key),
            missing=why,
        )
        return RankOutput(log=log)

    def _of(self, writer: Writer, share: int) -> RankOutput:
        key = _key(writer)
        ended = not self._lives(key)
        sources, problems = self._sources(key, self._known.get(key) or _Known(os.geteuid()))
        told, parts, own = [], [], []
        shared = False
        for source in sources:
            try:
                tail = self._tail(key, source, share // len(sources))
            except (OSError, SentinelError) as error:
                why = getattr(error, "strerror", None) or str(error)
                problems.append(f"{source.names} ({_shown(source.path)}): {_shown(why)}")
                continue
            others = self._others(key, source)
            shared |= bool(others)
            beside = f" (pid {', '.join(map(str, others))} write to it, too)" if others else ""
            told.append(f"{source.names}: {_shown(source.path)}{beside}")
            own += tail.own
            if tail.text:
                parts.append(f"==> {mask(told[-1])} <==\n{tail.text}\n")
        if told and not parts:
            problems.append("nothing was written there")
        log = RankLog(
            rank=writer.rank,
            label=writer.label,
            host=self._host,
            pid=key[0],
            ended=ended,
            missing="; ".join(dict.fromkeys(problems)),
            sources=tuple(told),
            shared=shared,
            telling="" if shared else telling_line(own),
        )
        return RankOutput(log=mask_record(log), data="\n".join(parts).encode())

    def _sources(self, key: Key, known: _Known) -> tuple[list[_Source], list[str]]:
        """The files to read, and a sentence for each stream that is not a file."""
        files: dict[tuple[int, int], list[int]] = {}
        others: dict[str, list[str]] = {}
        for number, stream in known.streams.items():
            if stream.identity is not None:
                files.setdefault(stream.identity, []).append(number)
            else:
                others.setdefault(_kind(stream.target), []).append(_STREAMS[number])
        sources = [
            _Source(
                " and ".join(_STREAMS[number] for number in numbers),
                known.streams[numbers[0]].target,
                known.owner,
                identity,
                numbers[0],
                known.streams[numbers[0]].size,
            )
            for identity, numbers in files.items()
        ]
        if sources and not others:
            return sources, []
        by_name = self._by_ray(key, {s for named in others.values() for s in named})
        if by_name and not sources:
            return by_name, []
        missing = [f"{' and '.join(names)} is {kind}" for kind, names in others.items()]
        if not known.streams and not by_name:
            missing = ["what it had open was not seen while it lived, and Ray has no file of it"]
            if self._lives(key):
                missing = ["what it has open may not be read: it is another user's"]
        return [*sources, *by_name], missing if not by_name else []

    def _by_ray(self, key: Key, wanted: set[str]) -> list[_Source]:
        """Ray's own files of a worker: ``worker-<worker>-<job>-<pid>.out`` and ``.err``.

        A pid is used again: what was written before the process began is another's.
        """
        folder = self._ray_logs()
        if folder is None:
            return []
        newest: dict[str, tuple[float, str]] = {}
        since = key[1] * TICK - _CLOCKS
        with contextlib.suppress(OSError):  # the session has gone: there is nothing to find
            for entry in os.scandir(folder):
                match = _RAY_FILE.fullmatch(entry.name)
                if match is None or int(match["pid"]) != key[0]:
                    continue
                at = self._wall.earliest(entry.stat(follow_symlinks=False).st_mtime, _CLOCKS)
                name = "stdout" if match["kind"] == "out" else "stderr"
                if at is not None and at >= since and (not wanted or name in wanted):
                    newest[name] = max(newest.get(name, (0.0, "")), (at, entry.path))
        return [_Source(name, path, os.geteuid()) for name, (_, path) in sorted(newest.items())]

    def _others(self, key: Key, source: _Source) -> list[int]:
        """Pids of other ranks that wrote to the same file meanwhile."""
        mine = self._known.get(key)
        if source.identity is None or mine is None:
            return []
        return sorted(
            other[0]
            for other, known in list(self._known.items())
            if other != key
            and known.met(mine)
            and any(stream.identity == source.identity for stream in known.streams.values())
        )

    def _tail(self, key: Key, source: _Source, most: int) -> _Tail:
        """Raises OSError and SentinelError."""
        with open(self._open(key, source), "rb") as file:
            info = os.fstat(file.fileno())
            if source.identity not in (None, (info.st_dev, info.st_ino)):
                raise SentinelError("another file has its name now")
            start = max(0, info.st_size - READ_BYTES)
            file.seek(start)
            data = file.read(READ_BYTES)
        text = last_lines(data.decode("utf-8", "replace"), most, cut=start > 0)
        lines = text.split("\n")
        # A file that became shorter was rewritten.
        begun = source.begun if source.begun <= info.st_size else 0
        own = data[max(0, begun - start) :].rstrip(b"\n").count(b"\n") + 1
        return _Tail(text, lines[-own:] if begun < start + len(data) else [])

    def _open(self, key: Key, source: _Source) -> int:
        if source.number and self._lives(key):
            handle = open_descriptor(key[0], source.number, source.owner)
            if self._lives(key):
                return handle
            os.close(handle)
        return open_evidence(Path(source.path.removesuffix(_DELETED)), source.owner)


def _key(writer: Writer) -> Key:
    return writer.process.pid, writer.process.start


def last_lines(text: str, most: int, *, cut: bool = False) -> str:
    """The last ``MOST_LINES`` lines and ``most`` bytes of a text, as a terminal would show them:
    only the last version of a line that was overwritten again and again. It is masked and without
    control characters. ``cut``: the text is the end of a longer one."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.rstrip("\n").split("\n")]
    whole = "\n".join(lines)
    size = kept = 0
    for line in reversed(lines[-MOST_LINES:]):
        size += len(line.encode()) + 1
        if size > most:
            break
        kept += len(line) + 1
    # One line may be longer than all that is kept.
    begin = max(0, len(whole) - (kept - 1 if kept else most // 4))
    before = whole[max(0, begin - MASK_BEFORE) : begin]
    shown = mask_tail(whole[begin:], before) if before or cut else mask(whole)
    return clean(shown)


def _kind(target: str) -> str:
    """A description of a stream that is not a regular file."""
    if target.startswith("pipe:"):
        return "a pipe (whoever started it has the lines)"
    if target.startswith("socket:"):
        return "a socket (whoever started it has the lines)"
    if target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return f"a terminal ({_shown(target)})"
    return _shown(target)


def _shown(path: str) -> str:
    """A path for people: bytes that are not UTF-8, and control characters, are written as
    escapes."""
    return clean(path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
