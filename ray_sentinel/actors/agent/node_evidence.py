"""Evidence from this node's ranks, as the coordinator asks for it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from ray_sentinel.actors.agent.node_dumps import NodeDumps, RecordOf
from ray_sentinel.actors.messages import CaptureRequest, Connections, NodeCapture, Sampled
from ray_sentinel.actors.ray_api import session_logs
from ray_sentinel.capture import session
from ray_sentinel.capture.connections import MOST_CONNECTIONS, connections_of
from ray_sentinel.capture.file_locks import awaited_locks
from ray_sentinel.capture.rank_output import RankOutputs
from ray_sentinel.capture.ras import RasPolls, poll_ranks
from ray_sentinel.capture.recorder_dumps import Recorders
from ray_sentinel.capture.tracer import all_tracers
from ray_sentinel.clock import WallHistory
from ray_sentinel.config import Config, safe_name
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.evidence.stacks.same import fold
from ray_sentinel.masking import mask_bytes
from ray_sentinel.model.identity import ProcessId, Rank
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.progress.ask import (
    held_stacks,
    request_stacks,
)
from ray_sentinel.progress.proc.proc_stat import read_stat
from ray_sentinel.progress.record_view import RecordView

SAMPLE_SECONDS = 2.0
"""Seconds that the harmless tools have to look at all requested ranks."""
MOST_STACKS = 1024
"""Most processes of one node that are looked at in one round."""
COMPANION_SECONDS = 0.7
"""Seconds that a companion thread has to answer. If it does not run, no longer wait would help."""
WATCHDOG_SECONDS = 6.5
"""Seconds to wait for the rank's watchdog, which speaks once the interpreter has been held for 5 s;
the verdict comes sooner."""
WATCHDOG_POLL = 0.5
"""Seconds between two checks whether the watchdog has spoken."""


def missing_tracer() -> str:
    """Why stacks cannot be taken from outside on this node; empty if they can."""
    return all_tracers()["py-spy"].available()


class Evidence:
    """Takes samples and dumps of ranks, several at a time. Methods block; any thread may call."""

    def __init__(
        self, host: str, config: Config, record_of: RecordOf, wall: WallHistory | None = None
    ) -> None:
        """``wall`` is the wall clock's history, which some other thread updates regularly."""
        self._host = host
        self._capture_config = config.capture
        self._poll_ras = config.nccl_ras.poll
        self._record_of = record_of
        self._capturing = threading.Lock()
        self._at_once = config.capture.samples_at_once
        self._pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="ray-sentinel-ask")
        recorders = Recorders(wall=wall)
        self.dumps = NodeDumps(host, record_of, self._at_once, recorders)
        self.outputs = RankOutputs(host, session_logs, wall)
        self.runs: Counter[tuple[str, str]] = Counter()
        """How often each tool ran, by (tool, outcome)."""
        self.capture_seconds: float | None = None
        """Seconds that the last capture took; None before the first."""

    def sample(self, ranks: Sequence[Rank]) -> Sampled:
        """One round of non-intrusive stacks, parsed and classified."""
        self.dumps.recorders.note(ranks)
        found = session.sample(ranks, parallel=self._at_once, deadline=SAMPLE_SECONDS)
        by_process = {rank.process: rank for rank in ranks}
        facts = self._pool.map(
            lambda fact: self._or_from_inside(fact, by_process[fact.process]), found.facts
        )
        return Sampled(facts=tuple(facts), problems=found.problems)

    def stacks(self, pids: Sequence[int]) -> Sampled:
        """One round of harmless stacks of any processes of this node; those that have ended are
        left out."""
        facts = session.sample_processes(
            self._living(pids[:MOST_STACKS]), parallel=self._at_once, deadline=SAMPLE_SECONDS
        )
        left = len(pids) - MOST_STACKS
        return Sampled(
            facts=facts,
            problems=(f"{self._host}: {left} processes more were not looked at",)
            if left > 0
            else (),
        )

    def connections(self, pids: Sequence[int]) -> Connections:
        """The connections of some processes on which an answer is due, and the locks on files that
        they await of each other."""
        living = self._living(pids)
        locks = awaited_locks(living)
        try:
            found = connections_of(living)
        except OSError as error:
            why = f"{self._host}: connections could not be read: {error}"
            return Connections(locks=locks, problem=why)
        cut = len(found) > MOST_CONNECTIONS
        return Connections(
            found=found[:MOST_CONNECTIONS],
            locks=locks,
            problem=f"{self._host}: more than {MOST_CONNECTIONS} connections" if cut else "",
        )

    def _living(self, pids: Iterable[int]) -> list[ProcessId]:
        stats = ((pid, read_stat(pid)) for pid in pids)
        return [ProcessId(self._host, pid, stat.start) for pid, stat in stats if stat is not None]

    def _or_from_inside(self, fact: StackFact, rank: Rank) -> StackFact:
        """What a process reports about itself, where no tool may look at it."""
        # The kernel stack, which root may always read, says less than the rank itself can report.
        if fact.signature and fact.tool != "kernel":
            return fact
        return self._from_inside(rank)[0] or fact

    def _from_inside(self, rank: Rank, patience: float = 0.0) -> tuple[StackFact | None, bytes]:
        """What a rank reports about itself, and the text that says so: its companion thread's
        stacks, or, if its interpreter does not run, those left by its watchdog, for which it waits
        ``patience`` seconds. None and an empty text if the rank reports nothing."""
        view = self._record_of(rank.process.pid, rank.process.start)
        end = time.monotonic() + patience
        while view is not None:
            told, text = self._asked(view, rank)
            if told is not None or not view.watchdog or time.monotonic() >= end:
                return told, text
            time.sleep(WATCHDOG_POLL)
        return None, b""

    @staticmethod
    def _asked(view: RecordView, rank: Rank) -> tuple[StackFact | None, bytes]:
        for ask in (partial(request_stacks, view, COMPANION_SECONDS), partial(held_stacks, view)):
            try:
                text = ask()
                traces = parse(text, rank.process, time.time())
            except SentinelError:
                continue  # the tool's own error, which the fact has, says more
            told = next((classify(trace) for trace in traces if trace.threads), None)
            if told is not None:
                return msgspec.structs.replace(told, rank=rank.id, process=rank.process), text
        return None, b""

    def nccl_ras(self, ranks: Sequence[Rank]) -> RasPolls:
        """The answers of NCCL's RAS service about these ranks' jobs, if the configuration polls
        it."""
        return poll_ranks(ranks, self._poll_ras)

    def capture(self, request: CaptureRequest) -> NodeCapture:
        """Run all tools. Suspects and waiters may be paused, as many at a time as is allowed."""
        with self._capturing:
            begun = time.monotonic()
            found = session.capture(
                request.suspects,
                request.waiters,
                request.others,
                self._capture_config,
                thorough=request.thorough,
            )
            self.capture_seconds = time.monotonic() - begun
        for run in found.traced:
            if not run.skipped:
                outcome = "timeout" if run.timed_out else "error" if run.problem else "ok"
                self.runs[run.tool, outcome] += 1
        facts, own = self._with_their_own(request, found.facts)
        files = found.files | own
        return NodeCapture(
            files=files if request.apart else fold(files), facts=facts, problems=found.problems
        )

    def _with_their_own(
        self, request: CaptureRequest, facts: Sequence[StackFact]
    ) -> tuple[tuple[StackFact, ...], dict[str, bytes]]:
        """``facts`` and files, completed by what ranks report about themselves where no tool could
        look."""
        ranks = {r.process: r for r in (*request.suspects, *request.waiters, *request.others)}

        def complete(fact: StackFact) -> tuple[StackFact, bytes]:
            rank = ranks.get(fact.process)
            if rank is None or (fact.signature and fact.tool != "kernel"):
                return fact, b""
            told, text = self._from_inside(rank, WATCHDOG_SECONDS)
            return told or fact, text

        completed = list(self._pool.map(complete, facts))
        host = safe_name(self._host)
        return tuple(fact for fact, _ in completed), {
            f"faulthandler_{host}_{fact.process.pid}.txt": mask_bytes(text)
            for fact, text in completed
            if text
        }

    def close(self) -> None:
        """Start nothing new."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.dumps.close()
