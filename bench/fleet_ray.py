"""What Ray's calls add to the coordinator's work with many nodes: ``bench/fleet.py`` over real Ray.

    python bench/fleet_ray.py [--nodes 200 500 1000] [--seconds 40] [--callers 2] [--relays]
        [--relays-above 256] [--agents-per-relay 64] [--taken-only] [--whole] [--figures FILE]
        [--plot docs/growth.svg]

The coordinator is an asynchronous Ray actor, as the real one is, and the simulated agents call it
from a few processes, each as many agents as its share; a real agent has a process of its own, so
what the connections of 1,000 processes cost comes on top. Beside it stands the same actor whose
method does nothing: what is left of the first figure is ours. Prints, for each number of nodes, the
share of a core of the actor's process, how many reports a second it answered, and how long they
waited for it, half and 99 % of them. With ``--relays`` each is measured once more with as many
relays as the real coordinator would make, real ones, which hand the reports on; what a relay takes
is printed too. In the middle of the run one of them is killed, and started again by Ray; agents
whose report it does not answer do as real ones do. Printed are the seconds from then until all
reports that it had were answered, and until it handed on reports again. With ``--whole`` the actor
that reads is measured once more with reports that contain everything, not only what has changed.

Ten seconds before the end a rank is stopped, and its state is asked for; after the end the
coordinator is killed, and another one takes its event log over. Printed are the seconds until the
rank was named, those of a status, and those from the kill until the new one reported the same
incident (Ray's own restart of an actor is the start of a process). ``--plot`` draws how CPU, lag
and memory grow, by way of relays where there are some.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import ray
from fleet import LAST_SECONDS, STOPPED, WARM_SECONDS, FleetCoordinator
from growth_plot import Panel, draw
from nodes import PER_NODE, SimulatedNode, hardware
from processes import resident
from ray.exceptions import RayError, RayTaskError

from ray_sentinel.actors.agent.ray_node import RELAY_AGAIN_SECONDS
from ray_sentinel.actors.coordinator.event_log.recovery import restore
from ray_sentinel.actors.coordinator.roster import LONGEST_INTERVAL
from ray_sentinel.actors.messages import Receipt, pack, unpack
from ray_sentinel.actors.names import COORDINATOR, NAMESPACE
from ray_sentinel.actors.relay.actor import Relay
from ray_sentinel.config import Config, CoordinatorConfig

HERE = Path(__file__).resolve().parent


class RayCoordinator:
    """Takes reports as the coordinator does, or answers them unread."""

    def __init__(
        self,
        folder: str,
        idle: bool,
        interval: float,
        restored: bool = False,
        whole: bool = False,
    ) -> None:
        engine = restore(Path(folder), Config()).engine if restored else None
        self._fleet = None if idle else FleetCoordinator(Path(folder), engine, whole=whole)
        self._nothing = pack(Receipt(interval=interval))
        self._answered = 0

    async def incident_texts(self) -> tuple[str, ...]:
        """Ids of the incidents, and who is suspected."""
        found = self._fleet.loop.incidents() if self._fleet is not None else ()
        return tuple(f"{one.id} {[who.rank for who in one.suspects]}" for one in found)

    async def named_at(self) -> float | None:
        """When the stopped rank was named, in Unix seconds."""
        return self._fleet.named_at if self._fleet is not None else None

    async def status(self) -> bytes:
        """What ``ray-sentinel status`` gets, packed and masked as the real one is."""
        assert self._fleet is not None
        return await asyncio.to_thread(self._fleet.status)

    async def report(self, data: bytes) -> bytes:
        """Take one report; the packed receipt."""
        self._answered += 1
        return self._nothing if self._fleet is None else self._fleet.answer(data)

    async def report_together(self, reports: list[bytes]) -> list[bytes]:
        """Take the reports of a relay; a receipt for each."""
        return [await self.report(data) for data in reports]

    async def figures(self) -> tuple[float, int, float]:
        """Seconds of CPU, reports answered, MiB."""
        return time.process_time(), self._answered, resident()

    async def close(self) -> None:
        """Close what takes the reports."""
        if self._fleet is not None:
            await asyncio.to_thread(self._fleet.close)


class Called(NamedTuple):
    """What some of the agents saw."""

    waits: list[float]
    """Seconds that each report waited for its answer, once all was warm."""
    stopped_at: float
    """When a rank was stopped."""
    again: list[float]
    """When reports were answered that a relay had not answered."""
    relayed: list[list[float]]
    """When reports were answered by way of each relay."""


class Callers:
    """Some of the agents: each looks once a second and reports what is due; one whose answer has
    not come waits. As ``CoordinatorLink`` does, it reports to the coordinator where its relay does
    not answer, and leaves that alone for a while."""

    def __init__(self, actor: Any, relays: list[Any], numbers: list[int], count: int) -> None:
        self._actor, self._relays = actor, relays
        self._nodes = {number: SimulatedNode(number, count * PER_NODE) for number in numbers}
        self._relay_at = dict.fromkeys(numbers, 0.0)
        """When each may use its relay."""
        self._waiting = set[int]()
        self._lock = threading.Lock()

    def run(self, seconds: int) -> Called:
        """Report for ``seconds``."""
        start = time.time()
        self._warm_at = start + WARM_SECONDS
        self._told = Called([], start + seconds - LAST_SECONDS, [], [[] for _ in self._relays])
        for second in range(seconds):
            families = hardware(second)
            if second == seconds - LAST_SECONDS and 0 in self._nodes:
                self._nodes[0].stopped = frozenset({STOPPED})
            for place, (number, node) in enumerate(self._nodes.items()):
                phase = place / len(self._nodes)
                time.sleep(max(0.0, start + second + phase - time.time()))
                with self._lock:
                    if number in self._waiting or not node.due(second, start + phase):
                        continue
                    self._waiting.add(number)
                data = node.report(node.snapshot(second, families, start=start + phase))
                self._send(number, data)
        return self._told

    def _send(self, number: int, data: bytes) -> None:
        sent = time.time()
        if not self._relays or sent < self._relay_at[number]:
            answer = self._actor.report.remote(data).future()
            answer.add_done_callback(lambda answer: self._receive(number, sent, answer))
            return
        place = number % len(self._relays)

        def relayed(answer: Any) -> None:
            try:
                self._receive(number, sent, answer)
                self._told.relayed[place].append(time.time())
            except RayTaskError:
                self._done(number)  # the coordinator does not answer it: with the next look
            except RayError:
                self._relay_at[number] = time.time() + RELAY_AGAIN_SECONDS
                itself = self._actor.report.remote(data).future()
                itself.add_done_callback(again)

        def again(answer: Any) -> None:
            self._receive(number, sent, answer)
            self._told.again.append(time.time())

        self._relays[place].report.remote(data).future().add_done_callback(relayed)

    def _receive(self, number: int, sent: float, answer: Any) -> None:
        receipt = unpack(answer.result(), Receipt)
        if time.time() > self._warm_at:
            self._told.waits.append(time.time() - sent)
        self._nodes[number].accept(receipt)
        self._done(number)

    def _done(self, number: int) -> None:
        with self._lock:
            self._waiting.discard(number)


class MeasuredRelay(Relay):
    """A relay that reports what it takes."""

    async def figures(self) -> tuple[float, float]:
        """Seconds of CPU, MiB."""
        return time.process_time(), resident()


class Measured(NamedTuple):
    """What is drawn of one run."""

    nodes: int
    idle: bool
    relays: int
    share: float
    p99: float
    memory: float


def measure(
    count: int, seconds: int, callers: int, *, idle: bool, relays: int = 0, whole: bool = False
) -> Measured:
    """Run ``count`` nodes over Ray for ``seconds``."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        light = {"num_cpus": 0, "enable_task_events": False, "namespace": NAMESPACE}
        coordinator = ray.remote(RayCoordinator).options(name=COORDINATOR, **light)
        most = Config().coordinator.reports_per_second
        interval = min(count / most, LONGEST_INTERVAL)
        actor = coordinator.remote(folder, idle, interval, whole=whole)
        ray.get(actor.figures.remote())
        relay = ray.remote(MeasuredRelay).options(max_restarts=-1, max_task_retries=0, **light)
        handing = [relay.remote() for _ in range(relays)]
        ray.get([one.ping.remote() for one in handing])
        made = [
            ray.remote(Callers)
            .options(num_cpus=0)
            .remote(actor, handing, list(range(number, count, callers)), count)
            for number in range(callers)
        ]
        runs = [one.run.remote(seconds) for one in made]
        time.sleep(WARM_SECONDS)
        begun, (spent, answered, _) = time.time(), ray.get(actor.figures.remote())
        # The first one is killed: what it takes has no beginning.
        handed = [ray.get(one.figures.remote())[0] for one in handing[1:]]
        killed_at = None
        if handing and not idle:
            ray.wait(runs, num_returns=len(runs), timeout=(seconds - WARM_SECONDS) / 2 - 4)
            killed_at = time.time()
            ray.kill(handing[0], no_restart=False)
        left = begun + seconds - WARM_SECONDS - 4 - time.time()
        ray.wait(runs, num_returns=len(runs), timeout=left)
        took = time.time() - begun
        spent_then, answered_then, memory = ray.get(actor.figures.remote())
        after = [ray.get(one.figures.remote()) for one in handing[1:]]
        extra = "" if idle else asked_status(actor)
        found: list[Called] = ray.get(runs)
        waits = sorted(wait for called in found for wait in called.waits)
        if killed_at is not None:
            extra += relay_killed(found, killed_at)
        if not idle:
            extra += named(actor, found[0].stopped_at)
            extra += taken_over(actor, folder, interval)
        for one in (actor, *made, *handing):
            ray.kill(one)
    each = ""
    if handed:
        took_each = [(then - now) / took for (then, _), now in zip(after, handed, strict=True)]
        each = (
            f"; each of {relays} relays {statistics.median(took_each):.3f} of a core, "
            f"{statistics.median(mib for _, mib in after):.0f} MiB"
        )
    share, p99 = (spent_then - spent) / took, waits[len(waits) * 99 // 100]
    print(
        f"{count:5} nodes, {'unread' if idle else 'all told' if whole else 'taken'}: {share:.3f} "
        f"of a core; {(answered_then - answered) / took:.0f} reports/s, wait "
        f"{1000 * statistics.median(waits):.1f} ms, p99 {1000 * p99:.0f};"
        f" {memory:.0f} MiB{each}{extra}",
        flush=True,
    )
    return Measured(count, idle, relays, share, p99, memory)


def asked_status(actor: Any) -> str:
    """What a status takes while the agents report, three times."""
    took = []
    for _ in range(3):
        begun = time.time()
        data = ray.get(actor.status.remote())
        took.append(time.time() - begun)
    return f"; status {statistics.median(took):.2f} s, {len(data) / 1e6:.2f} MB"


def relay_killed(found: list[Called], killed_at: float) -> str:
    """The seconds from the first relay's kill until no report waited for it any more, and until it
    handed on others."""
    again = [at for called in found for at in called.again]
    answered = max(again, default=killed_at)
    back = [at for called in found for at in called.relayed[0] if at > answered]
    return (
        f"; relay killed: the {len(again)} reports that it did not answer are answered after "
        f"{answered - killed_at:.1f} s, by way of it others "
        + (f"after {min(back) - killed_at:.1f} s" if back else "no more")
    )


def named(actor: Any, stopped_at: float) -> str:
    """The seconds from a rank's stop until it was named."""
    at = ray.get(actor.named_at.remote())
    return f"; stopped rank {f'named after {at - stopped_at:.1f} s' if at else 'not named'}"


def taken_over(actor: Any, folder: str, interval: float) -> str:
    """Kill the coordinator; the seconds until another one reports the same incidents."""
    before = ray.get(actor.incident_texts.remote())
    begun = time.time()
    ray.kill(actor)
    light = {"num_cpus": 0, "enable_task_events": False}
    again = ray.remote(RayCoordinator).options(**light).remote(folder, False, interval, True)
    after = ray.get(again.incident_texts.remote())
    took = time.time() - begun
    ray.kill(again)
    return (
        f"; killed: back after {took:.1f} s, {'the same' if before == after else 'OTHER'} incidents"
    )


def plotted(path: Path, runs: list[Measured], limits: CoordinatorConfig) -> None:
    """Plot, for each number of nodes, the run that is like the real coordinator's."""
    taken = {one.nodes: one for one in runs if not one.idle and not one.relays}
    taken |= {one.nodes: one for one in runs if not one.idle and one.relays}
    unread = {one.nodes: one for one in runs if one.idle and not one.relays}
    unread |= {one.nodes: one for one in runs if one.idle and one.relays}
    draw(
        path,
        [
            Panel(
                "CPU of the coordinator",
                "cores",
                {
                    "all": {number: one.share for number, one in taken.items()},
                    "Ray's calls alone": {number: one.share for number, one in unread.items()},
                },
            ),
            Panel(
                "A report waits, 99 %",
                "s",
                {"with what relays wait": {number: one.p99 for number, one in taken.items()}},
            ),
            Panel(
                "Resident memory",
                "MiB",
                {"coordinator": {number: one.memory for number, one in taken.items()}},
            ),
        ],
        f"nodes; relays above {limits.relays_above}",
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 500, 1000])
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--callers", type=int, default=2)
    parser.add_argument("--relays", action="store_true")
    usual = Config().coordinator
    parser.add_argument("--relays-above", type=int, default=usual.relays_above)
    parser.add_argument("--agents-per-relay", type=int, default=usual.agents_per_relay)
    parser.add_argument("--taken-only", action="store_true", help="without the unread runs")
    parser.add_argument(
        "--whole", action="store_true", help="a run of whole reports too, not drawn"
    )
    parser.add_argument("--figures", type=Path, help="JSON: of earlier runs, and of these")
    parser.add_argument("--plot", type=Path, help="an SVG file to be written of all of them")
    asked = parser.parse_args()
    paths = ":".join((str(HERE), str(HERE.parent)))
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    limits = CoordinatorConfig(
        relays_above=asked.relays_above, agents_per_relay=asked.agents_per_relay
    )
    runs: list[Measured] = []
    for count in asked.nodes:
        for idle in (False,) if asked.taken_only else (True, False):
            handing = asked.relays and count > limits.relays_above
            relays = math.ceil(count / limits.agents_per_relay)
            if not (handing and asked.plot):
                runs.append(measure(count, asked.seconds, asked.callers, idle=idle))
            if handing:
                runs.append(measure(count, asked.seconds, asked.callers, idle=idle, relays=relays))
        if asked.whole:
            relays = relays if handing else 0
            measure(count, asked.seconds, asked.callers, idle=False, relays=relays, whole=True)
    if asked.figures:
        if asked.figures.exists():
            runs = [*msgspec.json.decode(asked.figures.read_bytes(), type=list[Measured]), *runs]
        asked.figures.write_bytes(msgspec.json.format(msgspec.json.encode(runs)))
    if asked.plot:
        plotted(asked.plot, runs, limits)


if __name__ == "__main__":
    main()
