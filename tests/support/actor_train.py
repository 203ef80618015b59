"""A driver whose actor trains on a node of its own; it saves, and resumes from argv[2]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=1, max_restarts=0)
class Trainer:
    def step(self, n: int) -> float:
        time.sleep(0.2)
        return 1.0 / n


def main() -> None:
    folder, resume = Path(sys.argv[1]), sys.argv[2]
    begin = int(resume.rpartition("_")[2]) if resume else 0
    ray.init(log_to_driver=False)
    # The newest node: it is the one that the test takes away.
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 2]
    chosen = max(nodes, key=lambda node: node["NodeManagerAddress"])
    strategy = NodeAffinitySchedulingStrategy(chosen["NodeID"], soft=False)
    trainer = Trainer.options(scheduling_strategy=strategy).remote()
    for n in range(begin + 1, 31):
        loss = ray.get(trainer.step.remote(n))
        print(f"step {n} loss {loss:.4f} on {chosen['NodeManagerAddress']}", flush=True)
        if n % 5 == 0:
            target = folder / f"step_{n}"
            target.mkdir(parents=True, exist_ok=True)
            (target / "state.json").write_text("{}" * 100)


if __name__ == "__main__":
    main()
