"""A data-parallel training in JAX on CPUs over gloo, without a line of ray_sentinel. argv: folder.

It is told who it is by the variables that people pass to ``jax.distributed.initialize``. Where
``folder/stuck-RANK`` appears, that process falls asleep for ever between two steps.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

LAYERS = 40
"""Not rolled up: the first compile takes seconds."""
WIDTH = 16


def main() -> None:
    folder = Path(sys.argv[1])
    rank, size = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], size, rank)
    mesh = jax.make_mesh((size,), ("data",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    divided = NamedSharding(mesh, PartitionSpec("data"))
    place = jax.make_array_from_process_local_data
    weights = place(everywhere, np.full((LAYERS, WIDTH, WIDTH), 0.1, np.float32))

    def loss_of(weights: jax.Array, batch: jax.Array) -> jax.Array:
        for layer in range(LAYERS):
            batch = jnp.tanh(batch @ weights[layer])
        return jnp.mean((batch - 1.0) ** 2)

    @jax.jit
    def train(weights: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
        return weights - 0.1 * gradient, loss

    for step in range(10_000):
        time.sleep(0.2)
        wait_if_told(folder / f"stuck-{rank}")
        batch = place(divided, np.full((4, WIDTH), float(rank), np.float32))
        weights, loss = train(weights, batch)
        loss.block_until_ready()
        if step % 5 == 0:
            multihost_utils.process_allgather(np.array([step]))
        if step == 3:
            (folder / f"rank-{rank}").write_text(str(os.getpid()))


def wait_if_told(mark: Path) -> None:
    while mark.exists():
        time.sleep(600)


if __name__ == "__main__":
    main()
