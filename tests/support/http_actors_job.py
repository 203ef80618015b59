"""Rollouts ask a scorer by HTTP, which nobody calls by Ray. argv: a folder, and how the scorer
serves: in a "thread" of its actor, or in a "process" below it.

Once there is a file ``busy`` in the folder, a request takes as long as that is there, and works as
one does whose work is mostly a device's: it computes a little, and waits a little. Once there is a
file ``block``, one never ends.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER, HOW = Path(sys.argv[1]), sys.argv[2]


def even(number: int) -> int:
    return sum(one * one for one in range(0, number, 2))


def odd(number: int) -> int:
    return sum(one * one for one in range(1, number, 2))


def score() -> bytes:
    while (FOLDER / "busy").exists():
        even(100_000)
        odd(100_000)
        time.sleep(0.05)
    while (FOLDER / "block").exists():
        time.sleep(3600)
    time.sleep(0.1)
    return b"1.0"


class Scores(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        said = score()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        return


def serve() -> ThreadingHTTPServer:
    return ThreadingHTTPServer(("127.0.0.1", 0), Scores)


class Scorer:
    def __init__(self) -> None:
        if HOW == "thread":
            server = serve()
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.port = server.server_port
            return
        self.child = subprocess.Popen(
            [sys.executable, __file__, str(FOLDER), "serves"], stdout=subprocess.PIPE
        )
        assert self.child.stdout is not None
        self.port = int(self.child.stdout.readline())

    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Rollout:
    def __init__(self, url: str) -> None:
        self.url = url

    def generate(self) -> float:
        with urllib.request.urlopen(self.url, data=b"a text") as answer:
            return float(answer.read())


def main() -> None:
    import ray

    ray.init(address="auto", log_to_driver=False)
    actor: Any = ray.remote(num_cpus=0)
    scorer = actor(Scorer).remote()
    rollouts = [actor(Rollout).remote(ray.get(scorer.url.remote())) for _ in range(2)]
    while True:
        ray.get([one.generate.remote() for one in rollouts])


if HOW == "serves":
    # ``PR_SET_PDEATHSIG``: Ray kills the actor alone.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    with serve() as server:
        print(server.server_port, flush=True)
        server.serve_forever()
else:
    main()
