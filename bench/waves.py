"""What a deployment costs Ray's control store: an agent on each of many nodes.

    python bench/waves.py [--nodes 8 16]

For each number of nodes a cluster of real raylets on this machine, each with an address of its own;
then ``ray-sentinel up``. Prints the seconds until all are watched, the CPU that the control store
(``gcs_server``) took for it, and its share of a core before and afterwards. All raylets share this
machine, so the seconds say nothing of a real cluster; the control store's CPU grows with the nodes
there as it does here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from processes import own_cpu_seconds

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.ray_cluster import RayCluster

REST_SECONDS = 15.0


def share(pid: int, seconds: float) -> float:
    """The share of a core that a process takes over the next ``seconds``."""
    before, begun = own_cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (own_cpu_seconds(pid) - before) / (time.monotonic() - begun)


def measure(count: int) -> None:
    """Watch a cluster of ``count`` nodes, and print what that takes."""
    addresses = tuple(f"127.0.1.{number + 1}" for number in range(count - 1))
    cluster = RayCluster(addresses=addresses)
    try:
        store = cluster.control_store_pid
        idle = share(store, REST_SECONDS)
        with tempfile.TemporaryDirectory() as folder:
            before, begun = own_cpu_seconds(store), time.monotonic()
            cluster.up(Path(folder))
            took, spent = time.monotonic() - begun, own_cpu_seconds(store) - before
            time.sleep(5.0)
            busy = share(store, REST_SECONDS)
            cluster.down()
        print(
            f"{count:4} nodes: watched after {took:.1f} s; the control store took {spent:.2f} s of "
            f"CPU for it, {1000 * (spent - idle * took) / count:.0f} ms a node beyond its rest; "
            f"{idle:.3f} of a core before and {busy:.3f} afterwards",
            flush=True,
        )
    finally:
        cluster.stop()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 16])
    for count in parser.parse_args().nodes:
        measure(count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
