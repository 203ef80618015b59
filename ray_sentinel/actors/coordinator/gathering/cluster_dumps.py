"""The flight recorders of a job's ranks, from all nodes: small, bounded, and never sent twice.

Explanations use the reduced form, which each node makes of its own ranks' dumps; a hang or a
failure is judged by a part of that, a tenth. For a rank whose dump has not changed, only its digest
is sent. Raw dumps are for people: of few ranks.

A rank has up to two recorders: NCCL's, and that of the other libraries. They are kept apart, for
each numbers its operations by itself, and one may hold nothing: in a job that trains on GPUs and
talks by gloo it is NCCL's that does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ray_sentinel.actors.coordinator.gathering.agents import Agents, by_node
from ray_sentinel.actors.messages import Dump, DumpRequest, Dumps
from ray_sentinel.evidence.flight_recorder.libraries import library
from ray_sentinel.evidence.flight_recorder.reduced import Form
from ray_sentinel.model.identity import ProcessId, Rank

RECORDER_SECONDS = 10.0
"""Seconds that the agents have to ask their ranks, read the answers and send them: more than
``node_dumps.SECONDS``."""
NODE_BYTES = 16 << 20
"""Most bytes of reduced dumps in one node's answer; a rank's are some 15 KB."""
CLUSTER_BYTES = 256 << 20
"""Most bytes of reduced dumps from all nodes together; where there are many, each has an equal
share."""
BYTES_A_SECOND = 48_000_000
"""The rate at which nodes take turns, so that with everything else no more than 64 MB arrive in a
second. It is not a strict limit: nodes differ in how long they need, and in how much they send."""
RAW_NODE_BYTES = 64 << 20
RAW_CLUSTER_BYTES = 128 << 20
"""Most bytes of raw dumps from one node (``RAW_NODE_BYTES``), and from all nodes together."""
MOST_RECORDERS = 2
"""Most recorders of one rank that are read."""
KEPT_SECONDS = 300.0
"""Seconds for which a dump is kept, so that an agent can answer with its digest alone."""


DumpSets = dict[int, dict[int, bytes]]
"""Reduced dumps by rank, for each place (``Dump.place``) at which any rank has recorded anything,
in that order; where none has, one set that shows it; empty if nobody answered."""


class _Kept(msgspec.Struct):
    digest: bytes
    data: bytes
    at: float


class ClusterDumps:
    """Any thread may call; blocks for up to ``RECORDER_SECONDS``, plus the time between the turns
    of the first node and the last: some six seconds at most."""

    def __init__(self, agents: Agents, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._agents = agents
        self._monotonic = monotonic
        self.kept: dict[tuple[ProcessId, Form, int], _Kept] = {}
        self._lock = threading.Lock()

    def reduced(self, ranks: Iterable[Rank]) -> tuple[DumpSets, list[str]]:
        """Whole reduced dumps, and a line for each rank without one."""
        return self._reduced(ranks, "whole")

    def judged(self, ranks: Iterable[Rank]) -> tuple[DumpSets, list[str]]:
        """``reduced``, with only the part that is read to judge a hang or a failure."""
        return self._reduced(ranks, "judged")

    def raw(self, ranks: Iterable[Rank]) -> tuple[list[Dump], list[str]]:
        """All recorders of some ranks as they wrote them; what exceeds the bounds is named."""
        answers, problems = self._ask(by_node(ranks), None)
        return [dump for answer in answers.values() for dump in answer.dumps], problems

    def _reduced(self, ranks: Iterable[Rank], form: Form) -> tuple[DumpSets, list[str]]:
        nodes = by_node(ranks)
        answers, problems = self._ask(nodes, form)
        with self._lock:
            found = self._by_place(nodes, form, answers, problems)
        telling = {
            place: dumps for place, dumps in sorted(found.items()) if _have_operations(dumps)
        }
        return telling or dict(sorted(found.items())[:1]), problems

    def _ask(
        self, nodes: Mapping[str, Sequence[Rank]], form: Form | None
    ) -> tuple[dict[str, Dumps], list[str]]:
        """Without a ``form``: as the ranks wrote them."""
        most, all_together = (
            (RAW_NODE_BYTES, RAW_CLUSTER_BYTES) if form is None else (NODE_BYTES, CLUSTER_BYTES)
        )
        share = min(most, all_together // max(len(nodes), 1))
        # All are asked at once, so that the ranks' answers are of one moment.
        turns = {node: place * share / BYTES_A_SECOND for place, node in enumerate(nodes)}
        with self._lock:
            self._forget()
            requests = {
                node: DumpRequest(
                    ranks=tuple(asked),
                    raw=form is None,
                    judged=form == "judged",
                    known=tuple(self._digests(rank, form) for rank in asked) if form else (),
                    most_bytes=share,
                    after=turns[node],
                )
                for node, asked in nodes.items()
            }
        seconds = RECORDER_SECONDS + max(turns.values(), default=0.0)
        answers, problems = self._agents.ask("flight_recorder", requests, Dumps, seconds)
        for answer in answers.values():
            problems += answer.problems
        return answers, problems

    def _digests(self, rank: Rank, form: Form) -> tuple[bytes, ...]:
        kept = [self.kept.get((rank.process, form, place)) for place in range(MOST_RECORDERS)]
        return tuple(one.digest if one is not None else b"" for one in kept)

    def _by_place(
        self,
        nodes: Mapping[str, Sequence[Rank]],
        form: Form,
        answers: Mapping[str, Dumps],
        problems: list[str],
    ) -> dict[int, dict[int, bytes]]:
        found: dict[int, dict[int, bytes]] = {}
        now = self._monotonic()
        for node, answer in answers.items():
            processes = {rank.id.rank: rank.process for rank in nodes[node]}
            for dump in answer.dumps:
                process = processes.get(dump.rank)
                if process is None or not 0 <= dump.place < MOST_RECORDERS:
                    continue  # of a rank that was not asked about
                kept = self.kept.pop((process, form, dump.place), None)
                if dump.data:
                    kept = _Kept(dump.digest, dump.data, now)
                elif kept is None or kept.digest != dump.digest:
                    problems.append(f"rank {dump.rank}: its dump is known no more; asked again")
                    continue
                kept.at = now
                self.kept[process, form, dump.place] = kept
                found.setdefault(dump.place, {})[dump.rank] = kept.data
        self._forget()
        return found

    def _forget(self) -> None:
        """Drop what nobody has asked about for long, and the oldest dumps if all together are too
        large."""
        now, size = self._monotonic(), sum(len(kept.data) for kept in self.kept.values())
        for key, kept in list(self.kept.items()):
            if size <= CLUSTER_BYTES and now - kept.at <= KEPT_SECONDS:
                break  # those that follow are younger
            size -= len(kept.data)
            del self.kept[key]


def _have_operations(dumps: Mapping[int, bytes]) -> bool:
    """Whether any of these dumps holds an operation. Recorders without any are all alike."""
    return bool(library(dict(enumerate(dict.fromkeys(dumps.values())))))
