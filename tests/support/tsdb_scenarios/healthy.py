"""Jobs in which nothing is wrong, decoys apart."""

from __future__ import annotations

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import REST, World


def plain(world: World) -> Truth:
    """A job that trains, with the usual decoys."""
    decoys.usual(world)
    return Truth("", "")


def storm(world: World) -> Truth:
    """TCP retransmits by the thousand for half of the job, and full speed."""
    decoys.usual(world)
    decoys.tcp_storm(world, 0, 0.3 * world.t[-1], 0.5 * world.t[-1])
    return Truth("", "")


def restarted(world: World) -> Truth:
    """A restart that goes back some steps."""
    decoys.usual(world)
    at = 0.4 * world.t[-1]
    world.notes["restart"] = (at, 240.0, 12)
    return Truth("", "")


def gaps(world: World) -> Truth:
    """Prometheus was away twice."""
    decoys.usual(world)
    decoys.scrape_gap(world, 0.3 * world.t[-1], 150.0)
    decoys.scrape_gap(world, 0.6 * world.t[-1], 400.0)
    return Truth("", "")


def no_checkpoints(world: World) -> Truth:
    """A job without checkpoints."""
    world.checkpoints = False
    decoys.usual(world)
    return Truth("", "")


def one_host(world: World) -> Truth:
    """A single host."""
    decoys.usual(world)
    return Truth("", "")


def _ends(world: World) -> float:
    decoys.usual(world)
    end = world.draw((0.6, 0.85)) * float(world.t[-1])
    world.halt = end
    return end


def finished(world: World) -> Truth:
    """The job is done; its nodes go on to be watched while they rest."""
    world.state[:, :, world.after(_ends(world))] = REST
    return Truth("", "")


def finished_with_evaluation(world: World) -> Truth:
    """The job is done, and one host evaluates for some minutes more."""
    end = _ends(world)
    last = int(world.rng.integers(world.hosts))
    for host in range(world.hosts):
        more = world.draw((120, 400)) if host == last else 0.0
        world.state[host, :, world.after(end + more)] = REST
    return Truth("", "")


SCENARIOS = [
    Scenario("healthy-plain", plain),
    Scenario("healthy-tcp-storm", storm),
    Scenario("healthy-restarted", restarted, minutes=80),
    Scenario("healthy-gaps", gaps),
    Scenario("healthy-no-checkpoints", no_checkpoints),
    Scenario("healthy-one-host", one_host, hosts=1),
    Scenario("healthy-finished", finished),
    Scenario("healthy-finished-with-evaluation", finished_with_evaluation),
]
