"""A driver that runs one command on a node of a Ray cluster. argv: address, pid file, command...

A worker of Ray starts it, as launchers on clusters are started, and leaves its pid in the file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=1, max_retries=0)
def run(command: list[str], file: str) -> int:
    child = subprocess.Popen(command)
    partial = Path(f"{file}.part")
    partial.write_text(str(child.pid))
    partial.rename(file)
    return child.wait()


def main() -> None:
    address, file, *command = sys.argv[1:]
    ray.init()
    (node,) = (
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and node["NodeManagerAddress"] == address
    )
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    print("ended with", ray.get(run.options(scheduling_strategy=strategy).remote(command, file)))


if __name__ == "__main__":
    main()
