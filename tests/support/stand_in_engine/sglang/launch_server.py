"""The front end: starts the engine's processes, hands requests over. argv: folder, mode, --port N.

Reads one request a line, ``[tokens, stuck rank]``, and answers each with ``done``; one of 0 tokens
it never hands on. Serves its metrics under the names of SGLang's.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from prometheus_client import Counter, Gauge, start_http_server

RUNNING = Gauge("sglang:num_running_reqs", "The number of running requests.")
WAITING = Gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.")
TOKENS = Counter("sglang:generation_tokens", "Number of generation tokens processed.")


def main() -> None:
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    path = str(folder / "requests")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(path)
    server.listen()
    python = [sys.executable, "-W", "ignore", "-m"]
    scheduler = "sglang.srt.managers.scheduler"
    for rank in range(2):
        child = subprocess.Popen([*python, scheduler, str(rank), str(port), path, mode])
        (folder / f"rank-{rank}").write_text(str(child.pid))
    child = subprocess.Popen([*python, "sglang.detokenizer"])
    (folder / "detokenizer").write_text(str(child.pid))
    engine, _ = server.accept()
    start_http_server(int(sys.argv[sys.argv.index("--port") + 1]), "127.0.0.1")
    for line in sys.stdin:
        tokens = json.loads(line)[0]
        if not tokens:
            WAITING.inc()
            continue
        RUNNING.set(1)
        engine.send(line.encode())
        print(engine.recv(100).decode(), flush=True)
        RUNNING.set(0)
        TOKENS.inc(tokens)


if __name__ == "__main__":
    main()
