"""What it costs to find out who awaits an answer over a connection of its own.

    python bench/connections.py [--sockets 0 3000] [--nodes 10 100 1000] [--looks 5]

First on one node, beside as many more connected sockets as ``--sockets`` says, half of which await
an answer: the CPU time of an agent that is asked for the connections of one process, and of all
that it has started. Then at the coordinator, for as many nodes as ``--nodes`` says, with eight
processes each, every one of which awaits answers from four processes on other nodes: the bytes that
the agents answer, and the CPU time until it is known who awaits an answer from whom. Medians.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ray_sentinel.actors.messages import Connections, pack_masked, unpack
from ray_sentinel.capture.connections import connections_of, tcp_sockets
from ray_sentinel.model.connections import Connection
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.rank.own_process import start_ticks
from ray_sentinel.waitgraph.answers import awaited_answers

PROCESSES, PEERS = 8, 4
NOW = 1_800_000_000.0


def milliseconds(what: Callable[[], object], times: int) -> float:
    """Milliseconds of CPU of one call, the median."""
    spent = []
    for _ in range(times):
        begun = time.process_time()
        what()
        spent.append(1000 * (time.process_time() - begun))
    return statistics.median(spent)


def on_a_node(more: int, looks: int) -> None:
    """The part of an agent."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        ends = []
        for number in range(more // 2):
            client = socket.create_connection(server.getsockname())
            ends += [client, server.accept()[0]]
            if number % 2:
                client.send(b"?")
        asked = [ProcessId("host", os.getpid(), start_ticks())]
        found, all_of_it = len(connections_of(asked)), sum(1 for _ in tcp_sockets())
        spent = milliseconds(lambda: connections_of(asked), looks)
        print(f"{all_of_it:6} sockets, {found:5} told of: {spent:6.1f} ms of CPU")
        for end in ends:
            end.close()


def answer_of(node: int, nodes: int) -> Connections:
    """What the agent of one node answers: each process asks the same of the next nodes."""
    found = []
    for number in range(PROCESSES):
        process = ProcessId(address(node), 1000 + number, 1)
        for peer in range(1, PEERS + 1):
            here = f"{address(node)}:{20000 + number * PEERS + peer}"
            there = f"{address((node + peer) % nodes)}:{8000 + number}"
            found.append(
                Connection(
                    process=process, owner=process, local=here, remote=there, serves=False,
                    asked_at=NOW - 30.0,
                )
            )  # fmt: skip
            behind = f"{address((node - peer) % nodes)}:{20000 + number * PEERS + peer}"
            served = f"{address(node)}:{8000 + number}"
            found.append(
                Connection(process=process, owner=process, local=served, remote=behind, serves=True)
            )
    return Connections(found=found)


def address(node: int) -> str:
    """The IP address of a node by its number."""
    return f"10.{node >> 16 & 255}.{node >> 8 & 255}.{node & 255}"


def at_the_coordinator(nodes: int, looks: int) -> None:
    """The part of the coordinator."""
    answers = {str(node): pack_masked(answer_of(node, nodes)) for node in range(nodes)}
    ports = {(str(node), 1000 + n): 30_000 for node in range(nodes) for n in range(PROCESSES)}

    def matched() -> int:
        told = {id_: unpack(raw, Connections).found for id_, raw in answers.items()}
        return sum(1 for _ in awaited_answers(told, ports, NOW))

    size = sum(map(len, answers.values()))
    spent = milliseconds(matched, looks)
    print(
        f"{nodes:6} nodes: {size / 1e6:5.1f} MB, {spent:6.0f} ms of CPU, {matched()} answers "
        "awaited",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sockets", type=int, nargs="*", default=[0, 3000])
    parser.add_argument("--nodes", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--looks", type=int, default=5)
    asked = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for more in asked.sockets:
        on_a_node(more, asked.looks)
    for nodes in asked.nodes:
        at_the_coordinator(nodes, asked.looks)


if __name__ == "__main__":
    main()
