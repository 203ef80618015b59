"""A deployment of Ray Serve, asked again and again; argv: address of the cluster, folder.

It writes ``folder/serves`` when the first request was answered. Once ``folder/block`` is there, one
request goes out that takes two minutes. SIGTERM ends it, and the deployment.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import ray
from ray import serve


@serve.deployment(
    num_replicas=2, ray_actor_options={"num_cpus": 0.1}, graceful_shutdown_timeout_s=0.1
)
class Model:
    def __call__(self, seconds: float) -> None:
        time.sleep(seconds)


def main() -> None:
    ray.init(address=sys.argv[1])
    handle = serve.run(Model.bind(), name="app", route_prefix=None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(sys.argv[2])
    try:
        handle.remote(0.1).result()
        (folder / "serves").touch()
        while not (folder / "block").exists():
            handle.remote(0.1).result()
        handle.remote(120.0).result()
    finally:
        serve.shutdown()


if __name__ == "__main__":
    main()
