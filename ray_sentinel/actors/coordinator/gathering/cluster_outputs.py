"""The last lines of the ranks, actors and drivers that an incident's report names, from all nodes,
for its bundle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ray_sentinel.actors.bundles.bundle import capture_folder
from ray_sentinel.actors.coordinator.gathering.agents import Agents, by_node
from ray_sentinel.actors.messages import OutputRequest, Outputs
from ray_sentinel.config import safe_name
from ray_sentinel.engine.actions import Capture
from ray_sentinel.masking import mask_record
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import Incident, RankLog, RankOutput, Writer, writer_of

ANSWER_SECONDS = 12.0
"""Seconds that the agents have to read, mask and send outputs: more than one of them takes at its
deadlines."""
NODE_BYTES = 2 << 20
CLUSTER_BYTES = 32 << 20
"""Most bytes from all nodes together; where there are many, each has an equal share."""
MOST_WRITERS = 256
"""Most processes whose output is fetched, culprits first."""
MOST_QUOTED = 8
"""Most culprits whose last lines go into the report itself."""
QUOTED_LINES = 12
"""Most lines that an incident quotes of a rank's output; the bundle has the rest."""
QUOTED_CHARACTERS = 300
"""Most characters of a quoted line."""


class Harvest(NamedTuple):
    """``files`` by their names in the bundle, and what is known about each process's."""

    files: dict[str, bytes]
    logs: tuple[RankLog, ...]


class ClusterOutputs:
    """Any thread may call; blocks for up to ``ANSWER_SECONDS``."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def of(self, writer: Writer) -> RankOutput:
        """The last lines of one process, or why there are none; masked, also the reason."""
        (found,) = self._asked([writer])
        return msgspec.structs.replace(found, log=mask_record(found.log))

    def gather(self, action: Capture, number: int = 1) -> Harvest:
        """The last lines of the processes concerned, with the reason for each that has none.
        ``number`` is that of the capture among those of its incident."""
        writers = [*action.members, *map(writer_of, concerned(action))][:MOST_WRITERS]
        return _named(action.incident, self._asked(writers), number)

    def _asked(self, writers: Sequence[Writer]) -> list[RankOutput]:
        nodes = by_node(writers)
        share = min(NODE_BYTES, CLUSTER_BYTES // max(1, len(nodes)))
        requests = {n: OutputRequest(writers=asked, most_bytes=share) for n, asked in nodes.items()}
        answers, problems = self._agents.ask("rank_output", requests, Outputs, ANSWER_SECONDS)
        found: dict[tuple[str, int, int | None], RankOutput] = {}
        for node, answer in answers.items():
            for output in answer.found:
                found[node, output.log.pid, output.log.rank] = output
        whole = []
        for writer in writers:
            key = (writer.node, writer.process.pid, writer.rank)
            whole.append(found.get(key) or _missing(writer, answers.keys(), problems))
        return whole


def concerned(action: Capture) -> list[Rank]:
    """The ranks that the report will name, culprits first; all if nobody is named, because a manual
    capture covers everybody."""
    verdict = action.incident.verdict
    everyone = (*action.suspects, *action.gone, *action.waiters, *action.others)
    if verdict is None:
        return _unique(everyone)
    culprits = {(culprit.rank, culprit.pid) for culprit in verdict.culprits}
    named = {item.rank for item in verdict.evidence}
    named |= {fact.rank.rank for fact in verdict.stacks if fact.rank is not None}
    blamed = [rank for rank in everyone if (rank.id.rank, rank.process.pid) in culprits]
    others = [rank for rank in everyone if rank.id.rank in named]
    return _unique((*blamed, *action.suspects, *action.waiters, *others))


def _unique(ranks: Iterable[Rank]) -> list[Rank]:
    return list({(rank.node, rank.process): rank for rank in ranks}.values())


def _missing(writer: Writer, answered: Iterable[str], problems: Iterable[str]) -> RankOutput:
    node = writer.node[:8]
    said = next((line for line in problems if line.startswith(f"node {node}")), "")
    silent = "its agent did not say" if writer.node in answered else ""
    host, pid = writer.process.host, writer.process.pid
    why = silent or said or f"node {node} has no agent"
    return RankOutput(
        log=RankLog(rank=writer.rank, label=writer.label, host=host, pid=pid, missing=why)
    )


def _named(incident: Incident, outputs: Iterable[RankOutput], number: int) -> Harvest:
    """Files ``logs/rank-N.log`` or ``logs/NAME.log``, in a folder of its own for each later
    capture."""
    place = capture_folder(number)
    culprits = incident.verdict.culprits if incident.verdict is not None else ()
    quoted = {(c.host, c.rank, c.pid) for c in culprits[:MOST_QUOTED]}
    files: dict[str, bytes] = {}
    logs = []
    for output in outputs:
        log = output.log
        if output.data:
            who = f"{place}logs/{safe_name(log.who.replace(' ', '-'))}"
            name = f"{who}.log"
            if name in files:
                name = f"{who}-pid-{log.pid}.log"
            if name in files:  # the same number and pid, on another node
                name = f"{who}-pid-{log.pid}-{len(files)}.log"
            files[name] = output.data
            log = msgspec.structs.replace(log, file=name)
        if (log.host, log.rank, log.pid) in quoted:
            log = msgspec.structs.replace(log, lines=_quoted(output.data))
        logs.append(log)
    return Harvest(files, tuple(logs))


def _quoted(data: bytes) -> tuple[str, ...]:
    lines = [line for line in data.decode("utf-8", "replace").split("\n") if line.strip()]
    return tuple(line.rstrip()[:QUOTED_CHARACTERS] for line in lines[-QUOTED_LINES:])
