"""How much evidence a hang of many ranks brings into the coordinator, and onto its disk.

    python bench/hang.py [--nodes 1024] [--threads 20] [--entries 2000]

Eight ranks a node stand in a collective, one stands elsewhere. The stacks are py-spy's texts, one a
rank; the flight recorders are reduced as nodes reduce them, whole and to be judged, and sent by all
in turn. What explaining both takes is printed three times. Agents are simulated: when an answer
comes is what the coordinator asks for. Neither Ray nor the engine is in it:
``bench/hang_verdict.py`` measures the seconds to a verdict.
"""

from __future__ import annotations

import argparse
import os
import random
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import msgspec
from flight_recorder import CULPRIT, TP, large_job_trees, timed
from nodes import PER_NODE, SimulatedNode
from stacks import dump

from ray_sentinel.actors.coordinator.gathering.agents import Agents
from ray_sentinel.actors.coordinator.gathering.cluster_dumps import ClusterDumps
from ray_sentinel.actors.messages import Dump, DumpRequest, Dumps, Sampled, pack
from ray_sentinel.evidence.flight_recorder.reduced import MARK, Form, reduce
from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.evidence.stacks.same import fold
from ray_sentinel.waitgraph.recorder import explain


def recorders(world: int, entries: int, ranks: Sequence[int], form: Form = "whole") -> list[bytes]:
    """Reduced dumps of some ranks, whose times differ as clocks and devices make them differ."""
    dice = random.Random(ranks[0])
    return [reduce(timed(tree, dice), form) for _, tree in large_job_trees(world, entries, ranks)]


def every_recorder(world: int, entries: int, form: Form = "whole") -> list[bytes]:
    """The reduced recorders of all ranks. Those of two tensor groups, the hung one and the next,
    are made; all others are the next one's with the names of their own group."""
    hung = CULPRIT // TP * TP
    made = recorders(world, entries, range(hung, hung + 2 * TP), form)
    found = [of_group(made[TP + rank % TP], rank // TP * TP) for rank in range(world)]
    found[hung : hung + TP] = made[:TP]
    return found


def of_group(data: bytes, base: int) -> bytes:
    """A reduced recorder as the rank at the same place of the tensor group from ``base`` on has it:
    ``evidence.flight_recorder.reduced`` describes the form."""
    parts = msgspec.msgpack.decode(data[len(MARK) :])
    head, history, rest = (msgspec.msgpack.decode(zlib.decompress(p)) if p else p for p in parts)
    name, ranks = next((name, ranks) for _, name, desc, ranks in head[1] if desc == "TENSOR")
    steps = bytes((base & 255, *[1] * (TP - 1), base >> 8, *[0] * (TP - 1)))
    members = steps.ljust(8 * TP, b"\0") if isinstance(ranks, bytes) else [[base, 1, TP]]
    name_now = str(1 + base // TP)

    def renamed(value: Any) -> Any:
        if value == ranks:
            return members
        if isinstance(value, list):
            return [renamed(one) for one in value]
        if isinstance(value, dict):
            return {key: renamed(one) for key, one in value.items()}
        return name_now if value == name else value

    renewed = [renamed(part) for part in (head, history, rest)]
    packed = (zlib.compress(msgspec.msgpack.encode(part), 6) if part else part for part in renewed)
    return data[: len(MARK)] + msgspec.msgpack.encode(tuple(packed))


def python_only(text: str) -> bytes:
    """The text as py-spy writes it when it must stop nobody: without native frames and their
    addresses, and without threads that have no other frames."""
    lines = [line for line in text.splitlines(keepends=True) if ".so" not in line]
    told = pairwise([*lines, ""])
    empty = (line.startswith("Thread ") and after[:1] != " " for line, after in told)
    return "".join(line for line, none in zip(lines, empty, strict=True) if not none).encode()


class SimulatedAgents:
    """Answer in the second in which they should."""

    def __init__(self, whole: list[bytes], judged: list[bytes]) -> None:
        self._whole, self._judged = whole, judged
        self.came: Counter[int] = Counter()
        """Bytes of the answers, by second."""

    def ask(
        self, method: str, requests: Mapping[str, DumpRequest], kind: type[Dumps], seconds: float
    ) -> tuple[dict[str, Dumps], list[str]]:
        """The dumps by node; counts their bytes in the second of each node's turn."""
        answers = {}
        for node, request in requests.items():
            told = self._judged if request.judged else self._whole
            dumps = tuple(
                Dump(rank=r.id.rank, data=told[r.id.rank], digest=b"x") for r in request.ranks
            )
            answers[node] = Dumps(dumps=dumps)
            turn = request.turn(sum(len(dump.data) for dump in dumps))
            self.came[int(turn)] += len(pack(answers[node]))
        return answers, []


def on_disk(sizes: list[int]) -> int:
    """Bytes that files of these sizes take, in blocks of 4 KiB."""
    return sum(-(-size // 4096) * 4096 for size in sizes)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=20)
    parser.add_argument("--entries", type=int, default=2000)
    asked = parser.parse_args()
    world = asked.nodes * PER_NODE
    nodes = [SimulatedNode(number, world) for number in range(asked.nodes)]

    whole = sent = looked = 0
    came: dict[str, bytes] = {}
    begun = os.times()
    for node in nodes:
        files, facts = {}, []
        for rank in node.ranks:
            number = rank.id.rank
            text = python_only(dump(number, asked.threads, "plain", number == world * 2 // 3))
            files[f"pyspy_{node.node.host}_{1000 + number * 100}.txt"] = text
            traces = parse(text, rank.process, 0.0)
            facts += [msgspec.structs.replace(classify(t), rank=rank.id) for t in traces]
        folded = fold(files)
        whole += sum(map(len, files.values()))
        sent += sum(map(len, folded.values()))
        looked += len(pack(Sampled(facts=tuple(facts))))
        came |= folded
    kept = fold(came)
    spent = os.times().user - begun.user
    small = sum(map(len, kept.values()))
    print(
        f"{world} ranks: a round of stacks {looked / 1e6:.1f} MB; a capture's stacks "
        f"{whole / 1e6:.1f} MB, folded on the nodes {sent / 1e6:.1f} MB, in the bundle "
        f"{small / 1e6:.1f} MB; {spent:.1f} s of CPU for all nodes"
    )

    agents = SimulatedAgents(
        every_recorder(world, asked.entries), every_recorder(world, asked.entries, "judged")
    )
    dumps = ClusterDumps(cast(Agents, agents))
    judged, _ = dumps.judged(r for n in nodes for r in n.ranks)
    first = sum(map(len, judged.values()))
    print(f"a round of flight recorders to be judged {first / 1e6:.1f} MB of {len(judged)} ranks")
    agents.came.clear()
    found, _ = dumps.reduced(r for n in nodes for r in n.ranks)
    size = sum(map(len, found.values()))
    print(
        f"a round of whole flight recorders {size / 1e6:.0f} MB of {len(found)} ranks, over "
        f"{max(agents.came) + 1} s, at most {max(agents.came.values()) / 1e6:.0f} MB in one"
    )
    for _ in range(3):
        told = []
        for name, held in (("whole", found), ("to be judged", judged)):
            started = time.process_time()
            named = [culprit.rank for culprit in explain(held, world_size=world).culprits]
            told.append(f"{name} {time.process_time() - started:.2f} s of CPU: {named}")
        print("explained: " + "; ".join(told))
    sizes = [len(data) for data in (*kept.values(), *found.values())]
    print(f"bundle: {sum(sizes) / 1e6:.0f} MB, {on_disk(sizes) / 1e6:.0f} MB in blocks of 4 KiB")


if __name__ == "__main__":
    main()
