"""The driver: one job of actors, and whatever plan.json says."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import ray
from x_calling import x_Chained, x_Desks, x_Grouped, x_Nested, x_Pooled, x_Tasks
from x_growing import x_Growing
from x_learning import x_InFlight, x_InStep, x_Synchronised
from x_libraries import x_feed, x_serve, x_tune
from x_part import x_compute, x_FOLDER, x_note, x_Part, x_PLAN
from x_quiet import x_QUIET
from x_report import told

x_JOBS: dict[str, Any] = {
    "rl-sync": x_InStep,
    "rl-async": x_InFlight,
    "tasks": x_Tasks,
    "nested": x_Nested,
    "pool": x_Pooled,
    "chain": x_Chained,
    "groups": x_Grouped,
    "growing": x_Growing,
    "weights": x_Synchronised,
    "engines": x_Desks,
}
x_LIBRARIES = {"data-train": x_feed, "serve": x_serve, "tune": x_tune}


def x_drive(driver: x_Part) -> None:
    """Iterate until the plan ends it, if it does."""
    job = x_JOBS[x_PLAN["layout"]]()
    how = x_PLAN["how"]
    step = 0
    while not (how.startswith("end-") and step > x_PLAN["step"]):
        driver.x_begin()
        job.x_iterate(step)
        x_prepare(driver)
        step += 1
        if step == 3 and not (how.startswith("end-") or how in ("long", "evaluate")):
            x_note("steady", time.time())
        print(f"iteration {step}", flush=True)


def x_prepare(driver: x_Part) -> None:
    """Something of the driver's own between two iterations."""
    x_compute(0.05)
    driver.x_at("deep", driver.x_calls)


def x_end(how: str) -> None:
    x_note("began-healthy", time.time())
    if how == "end-shutdown":
        ray.shutdown()
        time.sleep(10.0)
    if how == "end-exit":
        sys.exit(0)


def x_main() -> None:
    # A driver that comes by Ray Client has its modules where the workers look for them, too.
    paths = {"PYTHONPATH": f"{x_FOLDER}:{os.environ.get('PYTHONPATH', '')}"}
    by_client = os.environ.get("RAY_ADDRESS", "").startswith("ray://")
    ray.init(log_to_driver=False, runtime_env={"env_vars": paths} if by_client else None)
    driver = x_Part("driver", 0)
    told()
    layout = x_PLAN["layout"]
    if layout == "quiet":
        x_QUIET[x_PLAN["how"]]()
    elif layout in x_LIBRARIES:
        x_LIBRARIES[layout]()
    else:
        x_drive(driver)
    x_end(x_PLAN["how"])


if __name__ == "__main__":
    x_main()
