"""Evidence from this node's ranks, as the coordinator asks for it."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ray_sentinel import process
from ray_sentinel.actors.messages import Captured, CaptureRequest, Dump, Dumps, Sampled
from ray_sentinel.config import Config
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.model.identity import ProcessId, Rank
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.progress.ask import NoAnswerError, request_flight_recorder, request_stacks
from ray_sentinel.progress.record_view import RecordView

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 2.0
RECORDER_SECONDS = 5.0

RecordOf = Callable[[int, int], RecordView | None]


class Evidence:
    """Takes samples and dumps of ranks, several at a time. Methods block; any thread may call."""

    def __init__(self, host: str, config: Config, record_of: RecordOf) -> None:
        self._host = host
        self._config = config
        self._record_of = record_of
        self._pool = ThreadPoolExecutor(
            max(1, config.capture.max_stacks_per_node), thread_name_prefix="ray-sentinel-stacks"
        )

    def sample(self, ranks: Iterable[Rank]) -> Sampled:
        """One round of harmless stacks, read and classified."""
        facts, problems = [], []
        for fact, problem in self._pool.map(self._sample, ranks):
            if fact is not None:
                facts.append(fact)
            if problem:
                problems.append(problem)
        return Sampled(facts=tuple(facts), problems=tuple(problems))

    def _sample(self, rank: Rank) -> tuple[StackFact | None, str]:
        who = ProcessId(self._host, rank.process.pid, rank.process.start)
        data, problem = self._stacks(rank)
        if not data:
            return None, f"rank {rank.id.rank} on {self._host}: {problem}"
        traces = parse(data, who, time.time())
        facts = [classify(trace) for trace in traces if trace.threads]
        if not facts:
            error = traces[0].error if traces else "no stacks"
            return None, f"rank {rank.id.rank} on {self._host}: {error}"
        return _named(facts[0], rank), ""

    def _stacks(self, rank: Rank) -> tuple[bytes, str]:
        ended = process.run(
            [pyspy(), "dump", "--nonblocking", "--json", "--pid", str(rank.process.pid)],
            deadline=SAMPLE_SECONDS,
        )
        if ended.ok and ended.stdout:
            return ended.stdout, ""
        view = self._record_of(rank.process.pid, rank.process.start)
        if view is None:
            return b"", ended.explain()
        try:
            return request_stacks(view, SAMPLE_SECONDS), ""
        except NoAnswerError as error:
            return b"", f"{ended.explain()}; {error}"

    def flight_recorder(self, ranks: Iterable[Rank]) -> Dumps:
        """The flight recorders of ranks that attached."""
        found: list[Dump] = []
        problems: list[str] = []
        for dumps, problem in self._pool.map(self._recorder, ranks):
            found += dumps
            if problem:
                problems.append(problem)
        return Dumps(dumps=tuple(found), problems=tuple(problems))

    def _recorder(self, rank: Rank) -> tuple[list[Dump], str]:
        view = self._record_of(rank.process.pid, rank.process.start)
        if view is None:
            return [], f"rank {rank.id.rank} on {self._host} is not attached: no flight recorder"
        try:
            dumps = request_flight_recorder(view, RECORDER_SECONDS)
        except NoAnswerError as error:
            return [], f"rank {rank.id.rank} on {self._host}: {error}"
        return [Dump(rank=rank.id.rank, data=dump.data, pickled=dump.pickled) for dump in dumps], ""

    def capture(self, request: CaptureRequest) -> Captured:
        """Run all tools; suspects and waiters may be paused."""
        files: dict[str, bytes] = {}
        problems: list[str] = []
        everyone = (*request.suspects, *request.waiters, *request.others)
        for name, data, problem in self._pool.map(self._dump, everyone):
            files[name] = data
            if problem:
                problems.append(problem)
        for rank in request.suspects:
            name = f"kernel_{self._host}_{rank.process.pid}.txt"
            try:
                files[name] = Path(f"/proc/{rank.process.pid}/stack").read_bytes()
            except OSError as error:
                problems.append(f"{name}: {error.strerror}")
        return Captured(files=files, problems=tuple(problems))

    def _dump(self, rank: Rank) -> tuple[str, bytes, str]:
        name = f"pyspy_{self._host}_{rank.process.pid}.txt"
        ended = process.run(
            [pyspy(), "dump", "--nonblocking", "--pid", str(rank.process.pid)], deadline=5.0
        )
        problem = "" if ended.ok else f"{name}: {ended.explain()}"
        return name, ended.stdout or ended.stderr, problem

    def close(self) -> None:
        """Begin nothing new."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def pyspy() -> str:
    """Beside the interpreter, or on PATH. Raises SentinelError where it is in neither."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if found is None:
        raise SentinelError("py-spy is not installed on this node: pip install py-spy")
    return found


def _named(fact: StackFact, rank: Rank) -> StackFact:
    import msgspec

    return msgspec.structs.replace(fact, process=rank.process, rank=rank.id)
