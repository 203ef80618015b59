"""A rank for tests of the shell: attaches, steps, and does as its standard input says.

Prints one line of JSON when it has attached: its pid, and what ``attach`` took.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

begun = time.perf_counter()
import ray_sentinel  # noqa: E402

imported = time.perf_counter()
job = sys.argv[1] if len(sys.argv) > 1 else None
sentinel = ray_sentinel.attach(job=job)
attached = time.perf_counter()
print(
    json.dumps(
        {
            "pid": os.getpid(),
            "import_seconds": imported - begun,
            "attach_seconds": attached - imported,
            "again": ray_sentinel.attach() is sentinel,
            "ray": "ray" in sys.modules,
        }
    ),
    flush=True,
)

orders: list[str] = []
threading.Thread(target=lambda: orders.extend(sys.stdin), daemon=True).start()
for step in range(1, 10_000):
    if orders:
        order = orders.pop(0).strip()
        if order == "wait":
            print(json.dumps({"ok": sentinel.wait(60), "problems": sentinel.problems}), flush=True)
        elif order == "status":
            status = sentinel.status()
            print(json.dumps({"nodes": len(status.nodes), "state": status.state}), flush=True)
        elif order == "end":
            break
    time.sleep(0.1)
    sentinel.step(step, loss=1.0 / step)
