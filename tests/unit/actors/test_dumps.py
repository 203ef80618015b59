"""Dumps across the cluster: small, bounded, sent once; and who has none is named."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from bench.flight_recorder import large_job, large_job_trees, timed
from ray_sentinel.actors.agent import node_dumps
from ray_sentinel.actors.agent.node_dumps import NodeDumps
from ray_sentinel.actors.coordinator.gathering import cluster_dumps
from ray_sentinel.actors.coordinator.gathering.agents import Agents
from ray_sentinel.actors.coordinator.gathering.cluster_dumps import (
    BYTES_A_SECOND,
    RECORDER_SECONDS,
    ClusterDumps,
    DumpSets,
)
from ray_sentinel.actors.messages import DumpRequest, Dumps, pack, unpack
from ray_sentinel.capture.dump_reducer import DumpReducer
from ray_sentinel.capture.recorder_dumps import NoDumpError
from ray_sentinel.cli.recorder_files import find
from ray_sentinel.engine.incidents.lifecycle import recorders_overdue
from ray_sentinel.evidence.flight_recorder.reduced import Form, history, reduce
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.own_process import start_ticks
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import RecordReader
from ray_sentinel.progress.requests import (
    RECORDER_JSON_ANSWER,
    RECORDER_PICKLE_ANSWER,
    answer_name,
)
from ray_sentinel.waitgraph.recorder import explain
from tests.support.waiting import eventually

WORLD = 16
RAW = dict(large_job(WORLD, 300))


class RanksOnDisk:
    """Living processes that did not attach, and whose watchdogs left dumps in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environ = {**os.environ, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "_dump_")}
        self.children = [
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environ)
            for _ in range(WORLD)
        ]
        for child in self.children:
            eventually(
                lambda pid=child.pid: Path(f"/proc/{pid}/environ").read_bytes(),  # type: ignore[misc]
                "the process has its environment",
            )
        self.ranks = tuple(
            Rank(
                id=RankId(job="j", attempt=0, rank=number),
                process=ProcessId(host="h", pid=child.pid, start=start_ticks(child.pid)),
                node=f"node{number % 2}",
            )
            for number, child in enumerate(self.children)
        )
        for number, data in RAW.items():
            (folder / f"_dump_{number}").write_bytes(data)

    def close(self) -> None:
        for child in self.children:
            child.communicate()


class InProcess:
    """Asks the nodes as ``Agents`` does, without Ray between; counts what is sent."""

    def __init__(self) -> None:
        self.nodes = {f"node{n}": NodeDumps(f"host{n}", lambda *_: None, 8) for n in range(2)}
        self.asked: list[DumpRequest] = []
        self.sent = 0

    def ask(
        self, method: str, requests: Mapping[str, DumpRequest], kind: type[Dumps], seconds: float
    ) -> tuple[dict[str, Dumps], list[str]]:
        assert method == "flight_recorder"
        answers = {}
        for node, request in requests.items():
            self.asked.append(unpack(pack(request), DumpRequest))
            answers[node] = pack(self.nodes[node].gather(self.asked[-1]))
        self.sent = sum(map(len, answers.values()))
        return {node: unpack(data, kind) for node, data in answers.items()}, []


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[RanksOnDisk]:
    ranks = RanksOnDisk(tmp_path)
    yield ranks
    ranks.close()


@pytest.fixture
def agents() -> Iterator[InProcess]:
    made = InProcess()
    yield made
    for node in made.nodes.values():
        node.close()


def cluster(agents: InProcess) -> ClusterDumps:
    return ClusterDumps(cast(Agents, agents))


def alone(sets: DumpSets) -> dict[int, bytes]:
    """The dumps of ranks that have one recorder each."""
    ((place, dumps),) = sets.items()
    assert place == 0
    return dumps


def test_what_is_sent_explains_the_same_and_only_changes_are_sent_again(
    on_disk: RanksOnDisk, agents: InProcess
) -> None:
    dumps = cluster(agents)
    sets, problems = dumps.reduced(on_disk.ranks)
    found = alone(sets)
    assert problems == []
    assert explain(found) == explain(RAW)
    assert agents.sent < sum(map(len, RAW.values())) // 20
    again, problems = dumps.reduced(on_disk.ranks)
    assert (alone(again), problems) == (found, [])
    assert agents.sent < 64 * WORLD
    (on_disk.folder / "_dump_3").write_bytes(RAW[4])
    changed = alone(dumps.reduced(on_disk.ranks)[0])
    assert {rank for rank in found if changed[rank] != found[rank]} == {3}
    assert changed[3] == reduce(RAW[4])


def test_what_is_judged_explains_the_same_and_is_told_apart_from_the_whole(
    on_disk: RanksOnDisk, agents: InProcess
) -> None:
    raw = {n: timed(tree, random.Random(n)) for n, tree in large_job_trees(WORLD, 300)}
    for number, data in raw.items():
        (on_disk.folder / f"_dump_{number}").write_bytes(data)
    dumps = cluster(agents)
    sets, problems = dumps.judged(on_disk.ranks)
    judged = alone(sets)
    small = agents.sent
    assert problems == []
    assert explain(judged) == explain(raw)
    whole = alone(dumps.reduced(on_disk.ranks)[0])
    assert whole == {rank: reduce(data) for rank, data in raw.items()}
    assert small < agents.sent // 2
    for asked, found in ((dumps.judged, judged), (dumps.reduced, whole)):
        assert asked(on_disk.ranks) == ({0: found}, [])
        assert agents.sent < 64 * WORLD


def test_a_coordinator_that_has_started_anew_gets_all(
    on_disk: RanksOnDisk, agents: InProcess
) -> None:
    assert cluster(agents).reduced(on_disk.ranks) == cluster(agents).reduced(on_disk.ranks)


def test_a_dump_that_is_known_no_more_is_asked_for_whole(
    on_disk: RanksOnDisk, agents: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    dumps = ClusterDumps(cast(Agents, agents), lambda: now[0])
    found = alone(dumps.reduced(on_disk.ranks)[0])
    now[0] += cluster_dumps.KEPT_SECONDS + 1.0
    dumps.reduced(on_disk.ranks[:1])
    assert len(dumps.kept) == 1
    monkeypatch.setattr(cluster_dumps, "CLUSTER_BYTES", 3 * len(found[0]))
    dumps.reduced(on_disk.ranks)
    assert sum(len(kept.data) for kept in dumps.kept.values()) <= 3 * len(found[0])


def test_what_is_too_much_is_left_out_and_named(on_disk: RanksOnDisk, agents: InProcess) -> None:
    mine = on_disk.ranks[: WORLD // 2]  # whose dumps are alike in size
    sizes = [len(reduce(RAW[rank.id.rank])) for rank in mine]
    node = agents.nodes["node0"]
    # Whichever ranks are read first: three of them are whole, and there is no room for a fourth.
    room = 3 * max(sizes) + 600
    assert room < 4 * min(sizes)
    answer = node.gather(DumpRequest(ranks=mine, most_bytes=room))
    assert sum(len(dump.data) for dump in answer.dumps) <= room
    whole = [bool(history(dump.data)) for dump in answer.dumps]
    assert sum(whole) == 3
    assert len(whole) > 3
    named = [line for line in answer.problems if "were left out" in line]
    assert len(named) == len(answer.problems) == len(mine) - len(whole)
    assert all(line.startswith("rank ") and " on host0: " in line for line in named)
    raw = node.gather(
        DumpRequest(ranks=mine, raw=True, most_bytes=max(map(len, RAW.values())) + 100)
    )
    (dump,) = raw.dumps
    assert dump.data == RAW[dump.rank]
    assert len(raw.problems) == len(mine) - 1


def test_nodes_share_what_the_cluster_may_send(
    on_disk: RanksOnDisk, agents: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_dumps, "CLUSTER_BYTES", 4000)
    sets, problems = cluster(agents).reduced(on_disk.ranks)
    found = alone(sets)
    assert {request.most_bytes for request in agents.asked} == {2000}
    assert sum(map(len, found.values())) <= 4000
    assert len(found) + len(problems) == WORLD


def test_ranks_without_a_dump_and_with_a_bad_one_are_named(
    on_disk: RanksOnDisk, agents: InProcess
) -> None:
    (on_disk.folder / "_dump_5").unlink()
    (on_disk.folder / "_dump_7").write_bytes(b"\x80\x02garbage")
    sets, problems = cluster(agents).reduced(on_disk.ranks)
    found = alone(sets)
    assert len(problems) == 1
    assert problems[0].startswith("rank 5 on host1: no flight recorder: it is not attached; ")
    raw = {rank: data for rank, data in RAW.items() if rank != 5} | {7: b"\x80\x02garbage"}
    assert explain(found) == explain(raw)
    assert "dump 7 is neither" in explain(found).problems[0]


def test_who_is_late_is_left_out_and_the_others_are_sent(
    on_disk: RanksOnDisk, agents: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = agents.nodes["node0"]
    monkeypatch.setattr(node_dumps, "SECONDS", 2.0)
    pipe = on_disk.folder / "no_answer"
    find_ = cast(Any, node.recorders).find

    def slow(rank: Rank, seconds: float) -> Path:
        if rank.id.rank == 2:
            pipe.open().read()
        return cast(Path, find_(rank, seconds))

    os.mkfifo(pipe)
    monkeypatch.setattr(node.recorders, "find", slow)
    mine = tuple(rank for rank in on_disk.ranks if rank.node == "node0")
    answer = node.gather(DumpRequest(ranks=mine, most_bytes=1 << 20))
    pipe.open("w").close()
    assert {dump.rank for dump in answer.dumps} == {r.id.rank for r in mine} - {2}
    assert answer.problems == (
        "rank 2 on host0: no flight recorder: it did not write one within 2 s",
    )


def test_a_bundle_of_raw_and_reduced_dumps_explains_what_all_raw_ones_do(tmp_path: Path) -> None:
    for rank, data in RAW.items():
        whole = rank in (5, 13)
        name = f"_dump_{rank}" + ("" if whole else ".reduced")
        (tmp_path / name).write_bytes(data if whole else reduce(data))
    files = find([str(tmp_path)])
    assert (len(files.paths), files.ignored, files.others) == (WORLD, [], [])
    assert explain(files.dumps()) == explain(RAW)


GPU_JOB = Path("tests/fixtures/flight_recorder/gpu_job_by_gloo")
"""Two ranks of a PyTorch with CUDA that talk by gloo: NCCL's recorder is there, and empty."""


class AttachedRanks:
    """Two ranks that attached, each with an NCCL recorder and one of the other libraries, and one
    node for each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(node_dumps, "ask_flight_recorder", lambda *_, **__: None)
        self._writers = [
            ProgressWriter.open(RankIdentity(job="gpu", rank=number), [folder]) for number in (0, 1)
        ]
        self._reader = RecordReader([folder])
        self.views = {cast(Any, view.identity).rank: view for view in self._reader.scan()}
        self.nodes = {
            f"node{n}": NodeDumps(f"host{n}", lambda pid, _: self.views[pid], 8) for n in (0, 1)
        }
        self.ranks = tuple(
            Rank(
                id=RankId(job="gpu", attempt=0, rank=number),
                process=ProcessId(host="h", pid=number, start=1),
                node=f"node{number}",
            )
            for number in (0, 1)
        )
        self.sent = 0

    def left(self, rank: int, nccl: bytes, others: bytes) -> None:
        path = self.views[rank].path
        for answer, data in ((RECORDER_PICKLE_ANSWER, nccl), (RECORDER_JSON_ANSWER, others)):
            path.with_name(answer_name(path.name, answer)).write_bytes(data)

    def ask(
        self, method: str, requests: Mapping[str, DumpRequest], kind: type[Dumps], seconds: float
    ) -> tuple[dict[str, Dumps], list[str]]:
        answers = {node: pack(self.nodes[node].gather(asked)) for node, asked in requests.items()}
        self.sent = sum(map(len, answers.values()))
        return {node: unpack(data, kind) for node, data in answers.items()}, []

    def close(self) -> None:
        self._reader.close()
        for node in self.nodes.values():
            node.close()
        for writer in self._writers:
            writer.close()


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AttachedRanks]:
    made = AttachedRanks(tmp_path, monkeypatch)
    yield made
    made.close()


def of_the_job(name: str, rank: int) -> bytes:
    return (GPU_JOB / name.format(rank)).read_bytes()


def test_a_job_on_gpus_that_talks_by_gloo_is_judged_by_the_recorder_that_holds_something(
    attached: AttachedRanks,
) -> None:
    for rank in (0, 1):
        attached.left(rank, of_the_job("_dump_{}", rank), of_the_job("_dump_others_{}.json", rank))
    dumps = ClusterDumps(cast(Agents, attached))
    sets, problems = dumps.judged(attached.ranks)
    assert problems == []
    assert [*sets] == [1]
    facts = explain(sets[1], world_size=2)
    assert (facts.kind, [culprit.rank for culprit in facts.culprits]) == ("not-enqueued", [1])
    first = attached.sent
    assert dumps.judged(attached.ranks) == (sets, [])
    assert attached.sent < first // 2, "what has not changed is sent as digests"
    raw, _ = dumps.raw(attached.ranks)
    told = [(dump.rank, dump.place, dump.pickled) for dump in raw]
    assert sorted(told) == [(0, 0, True), (0, 1, False), (1, 0, True), (1, 1, False)]


def test_both_recorders_are_judged_where_both_hold_something(attached: AttachedRanks) -> None:
    for rank in (0, 1):
        attached.left(rank, RAW[rank], of_the_job("_dump_others_{}.json", rank))
    sets, _ = ClusterDumps(cast(Agents, attached)).reduced(attached.ranks)
    assert [*sets] == [0, 1]
    assert sets[0] == {rank: reduce(RAW[rank]) for rank in (0, 1)}


def test_what_a_rank_left_is_told_apart_by_its_kind_where_nccls_could_not_be_written(
    attached: AttachedRanks,
) -> None:
    attached.left(0, RAW[0], of_the_job("_dump_others_{}.json", 0))
    attached.left(1, b"", of_the_job("_dump_others_{}.json", 1))
    dumps = ClusterDumps(cast(Agents, attached))
    sets, problems = dumps.judged(attached.ranks)
    assert problems == []
    assert {place: [*one] for place, one in sets.items()} == {0: [0], 1: [0, 1]}
    assert dumps.judged(attached.ranks) == (sets, [])
    raw, _ = dumps.raw(attached.ranks)
    assert sorted((one.rank, one.place) for one in raw) == [(0, 0), (0, 1), (1, 1)]


def test_a_recorder_that_cannot_be_reduced_takes_the_other_one_not_with_it(
    attached: AttachedRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is too large to be read in time, say."""

    def reduced(_: object, data: bytes, __: float, ___: Form) -> bytes:
        if data.startswith(b"too large"):
            raise NoDumpError("it took too long")
        return reduce(data)

    monkeypatch.setattr(DumpReducer, "reduce", reduced)
    attached.left(0, b"too large", of_the_job("_dump_others_{}.json", 0))
    attached.left(1, of_the_job("_dump_{}", 1), of_the_job("_dump_others_{}.json", 1))
    sets, problems = ClusterDumps(cast(Agents, attached)).reduced(attached.ranks)
    assert {place: [*one] for place, one in sets.items()} == {1: [0, 1]}
    assert problems == [
        "rank 0 on host0: one of its flight recorders is left out: it took too long"
    ]


def test_recorders_that_hold_nothing_are_one_set(attached: AttachedRanks) -> None:
    for rank in (0, 1):
        empty = of_the_job("_dump_{}", rank)
        attached.left(rank, empty, b'{"entries": []}')
    sets, problems = ClusterDumps(cast(Agents, attached)).judged(attached.ranks)
    assert ([*sets], [*sets[0]], problems) == ([0], [0, 1], [])


def test_a_bundle_of_both_recorders_keeps_them_apart(tmp_path: Path) -> None:
    """Of the suspects as they wrote them, of all others in the reduced form."""
    for rank in (0, 1):
        for name in ("_dump_{}", "_dump_others_{}.json"):
            data, stem = of_the_job(name, rank), name.format(rank).removesuffix(".json")
            whole = rank == 1
            path = tmp_path / (name.format(rank) if whole else f"{stem}.reduced")
            path.write_bytes(data if whole else reduce(data))
    files = find([str(tmp_path)])
    assert {path.name for path in files.paths.values()} == {
        "_dump_others_0.reduced",
        "_dump_others_1.json",
    }
    assert [{path.name for path in other.values()} for other in files.others] == [
        {"_dump_0.reduced", "_dump_1"}
    ]
    facts = explain(files.dumps(), world_size=2)
    assert [culprit.rank for culprit in facts.culprits] == [1]


def test_dumps_travel_as_they_are() -> None:
    answer = Dumps(problems=("one",))
    assert unpack(pack(answer), Dumps) == answer


class Requested:
    """What the nodes of a job of eight ranks a node are asked, and how long they are waited for."""

    def __init__(self, nodes: int, *, raw: bool = False) -> None:
        ranks = [
            Rank(
                id=RankId("job", 0, n),
                process=ProcessId(f"host{n // 8}", n + 1, 1),
                node=f"node{n // 8}",
            )
            for n in range(8 * nodes)
        ]
        dumps = ClusterDumps(cast(Agents, self))
        (dumps.raw if raw else dumps.reduced)(ranks)

    def ask(
        self, method: str, requests: Mapping[str, DumpRequest], kind: type[Dumps], seconds: float
    ) -> tuple[dict[str, Dumps], list[str]]:
        self.requests = list(requests.values())
        self.seconds = seconds
        return {}, []

    def most_in_a_second(self, size: int) -> int:
        """Bytes, where each node has so many and all take equally long."""
        turns = sorted(request.turn(size) for request in self.requests)
        most = end = 0
        for start, first in enumerate(turns):
            while end < len(turns) and turns[end] - first < 1.0:
                end += 1
            most = max(most, end - start)
        return size * most


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 16, 64, 256, 1024, 4096])
def test_nodes_answer_one_after_the_other_whatever_they_have_to_send(nodes: int, raw: bool) -> None:
    asked = Requested(nodes, raw=raw)
    share = asked.requests[0].most_bytes
    for size in (share, share // 2, share // 100):
        assert asked.most_in_a_second(size) <= BYTES_A_SECOND + share
    assert asked.requests[0].turn(share) == 0.0, "who is the only one does not wait"
    # The last one's turn comes after all that it may take to gather.
    last = max(request.turn(share) for request in asked.requests)
    assert asked.seconds == RECORDER_SECONDS + last < RECORDER_SECONDS + 6.0
    assert RECORDER_SECONDS > node_dumps.SECONDS


@pytest.mark.parametrize("nodes", [1, 16, 64, 256, 1024, 4096])
def test_a_verdict_waits_for_the_last_turn(nodes: int) -> None:
    asked = Requested(nodes)
    size = min(8 * 32 << 10, asked.requests[0].most_bytes)  # twice what ranks have
    last = max(request.turn(size) for request in asked.requests)
    gathering = 2.0
    assert gathering + last < recorders_overdue(8 * nodes)


def test_a_slow_node_keeps_its_distance_and_digests_need_no_turn(on_disk: RanksOnDisk) -> None:
    waited: list[float] = []
    node = NodeDumps("host0", lambda *_: None, 8, sleep=waited.append)
    mine = tuple(rank for rank in on_disk.ranks if rank.node == "node0")
    try:
        # So short that it is over before the first rank is read.
        request = DumpRequest(ranks=mine, most_bytes=1 << 20, after=1e-6)
        first = node.gather(request)
        assert waited == [request.turn(sum(len(dump.data) for dump in first.dumps))]
        assert 0.0 < waited[0] < request.after
        raw = msgspec.structs.replace(request, raw=True, most_bytes=1 << 30)
        whole = node.gather(raw)
        assert waited[1:] == [raw.turn(sum(len(dump.data) for dump in whole.dumps))]
        digests = {dump.rank: dump.digest for dump in first.dumps}
        known = tuple((digests[rank.id.rank],) for rank in mine)
        again = node.gather(msgspec.structs.replace(request, known=known, after=60.0))
    finally:
        node.close()
    assert waited[2:] == [0.0]
    assert {dump.rank: dump.digest for dump in again.dumps} == digests
    assert not any(dump.data for dump in again.dumps)
