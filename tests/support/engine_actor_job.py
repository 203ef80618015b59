"""An actor that has a stand-in engine of two ranks below it. argv: a folder, in which a file
``lose`` is the sign for a request that the engine's front end never hands on, and a file ``served``
is left when the first is answered."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import ray

FOLDER = Path(sys.argv[-1])
ENGINE = Path(__file__).parent / "stand_in_engine"


@ray.remote(num_cpus=0)
class EngineServer:
    def __init__(self, folder: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        more = {"PYTHONPATH": str(ENGINE), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        self.engine = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", folder, "rests", "--port", str(port)],
            env={**os.environ, **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def generate(self, tokens: int) -> str:
        assert self.engine.stdin is not None
        assert self.engine.stdout is not None
        self.engine.stdin.write(f"[{tokens}, -1]\n")
        self.engine.stdin.flush()
        return self.engine.stdout.readline()


def main() -> None:
    ray.init(address="auto", log_to_driver=False)
    server = EngineServer.remote(str(FOLDER))
    while True:
        ray.get(server.generate.remote(0 if (FOLDER / "lose").exists() else 50))
        (FOLDER / "served").touch()


main()
