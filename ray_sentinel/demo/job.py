"""The training job: the ranks of a script, shared out over the nodes, as plain processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel import process, signals
from ray_sentinel.demo.actor_ranks import ActorRanks
from ray_sentinel.demo.cluster import free_port
from ray_sentinel.progress.discovery.environment import job_from

SECONDS = 60.0
"""Seconds to wait for an answer of a launcher."""


class Launcher:
    """An actor on each node that starts this node's ranks and ends them."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(
        self, ranks: Sequence[int], folder: str, script: str, variables: Mapping[str, str]
    ) -> dict[int, int]:
        """Start some ranks; returns their pids by rank."""
        # Those of an earlier attempt may have been others.
        self._children = {n: child for n, child in self._children.items() if child.poll() is None}
        for local, rank in enumerate(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(local)}
            self._children[rank] = self._spawn(
                [script], f"rank-{rank}", folder, {**variables, **own}
            )
        return {rank: self._children[rank].pid for rank in ranks}

    def serve(self, folder: str, script: str, port: int) -> None:
        """Start the service that the ranks ask; it is no rank."""
        self._children[-1] = self._spawn([script, str(port)], "service", folder, {})

    @staticmethod
    def _spawn(
        command: Sequence[str], name: str, folder: str, variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with open(Path(folder) / f"{name}.log", "ab") as log:
            return process.spawn(
                [sys.executable, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables},
                cwd=folder,
            )

    def ended(self) -> dict[int, int]:
        """Exit statuses of ranks that have ended, by rank."""
        return {
            rank: code
            for rank, child in self._children.items()
            if rank >= 0 and (code := child.poll()) is not None
        }

    def signal(self, number: int) -> None:
        """Send a signal to all ranks that are left."""
        for rank, child in self._children.items():
            if rank >= 0 and child.poll() is None:
                signals.send_child(child, number)

    def end(self) -> None:
        """End what is left, also what is stopped."""
        for child in self._children.values():
            process.kill(child)
        for child in self._children.values():
            process.end(child)
        self._children.clear()


class DemoJob:
    """The launchers of all nodes as one thing.

    ``addresses`` are those of the nodes; ``folder`` holds what ``write_scripts`` put there.
    """

    def __init__(self, ray: Any, addresses: Sequence[str], folder: Path) -> None:
        self._ray = ray
        self._folder = folder
        told = msgspec.json.decode((folder / "plan.json").read_bytes())
        self._scripts: dict[str, str] = told["scripts"]
        self._culprits = len(told["how"])
        self._answers, self._recorder = int(told["answers"]), bool(told["recorder"])
        self.world = int(told["world"])
        self._port = free_port()
        self._addresses = list(addresses)
        self._actors = ActorRanks(ray) if told["actors"] else None
        kind = ray.remote(Launcher)
        # Ranks that are actors need none: each would be one more worker for nothing.
        needed = self._actors is None or self._answers
        self._launchers = [
            kind.options(num_cpus=0, resources={f"node:{address}": 0.001}).remote()
            for address in (addresses if needed else ())
        ]

    @property
    def name(self) -> str:
        """What the sentinel calls the job, which has no other name than its rendezvous."""
        return job_from(self._rendezvous)

    @property
    def _rendezvous(self) -> dict[str, str]:
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._port)}

    def start(self) -> dict[int, int]:
        """Start all ranks, and the service if they need one; returns pids by rank."""
        variables = {
            **self._rendezvous,
            "WORLD_SIZE": str(self.world),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        # Newer PyTorch records by itself, older ones only if told to.
        variables["TORCH_FR_BUFFER_SIZE"] = "2000" if self._recorder else "0"
        if self._answers:
            port = free_port()
            variables["SERVICE_PORT"] = str(port)
            script = self._scripts["x_service"]
            self._all("serve", [(str(self._folder), script, port)])
        shares = _shares(self.world, len(self._addresses))
        script = self._scripts["x_main"]
        if self._actors is not None:
            places = {
                rank: (address, local)
                for address, share in zip(self._addresses, shares, strict=False)
                for local, rank in enumerate(share)
            }
            return self._actors.start(places, str(self._folder), script, variables)
        asked = [(share, str(self._folder), script, variables) for share in shares]
        return {rank: pid for some in self._all("start", asked) for rank, pid in some.items()}

    def ended(self) -> dict[int, int]:
        """Exit statuses by rank; for actors, those of their tasks."""
        if self._actors is not None:
            return self._actors.ended()
        return {rank: code for some in self._all("ended") for rank, code in some.items()}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all ranks."""
        if self._actors is not None:
            self._actors.signal(int(number))
        self._all("signal", [(int(number),)] * len(self._launchers))

    def end(self) -> None:
        """End all ranks that are left."""
        if self._actors is not None:
            self._actors.end()
        self._all("end")

    def close(self) -> None:
        """End all, for good."""
        self.end()
        for launcher in self._launchers:
            self._ray.kill(launcher)

    def _all(self, method: str, arguments: Sequence[tuple[Any, ...]] = ()) -> list[Any]:
        """Ask all launchers, or the first few, each with arguments of its own."""
        told = arguments or [()] * len(self._launchers)
        pairs = zip(self._launchers, told, strict=False)
        refs = [getattr(launcher, method).remote(*given) for launcher, given in pairs]
        return list(self._ray.get(refs, timeout=SECONDS))

    def began(self) -> float | None:
        """When the trouble was complete (Unix seconds); None before."""
        told = [_number(path) for path in self._folder.glob("began-*")]
        moments = [moment for moment in told if moment is not None]
        return max(moments) if moments and len(moments) >= self._culprits else None

    def last_lines(self, rank: int, count: int = 3) -> list[str]:
        """The end of a rank's output."""
        try:
            text = (self._folder / f"rank-{rank}.log").read_text(errors="replace")
        except OSError:
            return []
        return text.splitlines()[-count:]


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def _shares(world: int, nodes: int) -> list[list[int]]:
    """Ranks by node, in runs as even as can be."""
    ends = [round(world * (node + 1) / nodes) for node in range(nodes)]
    return [
        list(range(begin, end)) for begin, end in zip([0, *ends], ends, strict=False) if end > begin
    ]
