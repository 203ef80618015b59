"""ray_sentinel names the rank that hangs a distributed training job on Ray, and says why.

    import ray_sentinel

    sentinel = ray_sentinel.attach()
    for n, batch in enumerate(data):
        ...
        sentinel.step(n)

Importing this costs next to nothing: what a function needs is imported when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded at their first use: see ``__getattr__``
    from ray_sentinel.job_submission import restart_job, submit_job_with_resume
    from ray_sentinel.monitor import monitor_job
    from ray_sentinel.sentinel import Sentinel, attach
    from ray_sentinel.supervised_run import auto_restart, run
    from ray_sentinel.version import __version__

__all__ = [
    "Sentinel",
    "__version__",
    "attach",
    "auto_restart",
    "monitor_job",
    "restart_job",
    "run",
    "submit_job_with_resume",
]

_HOMES = {
    "Sentinel": "sentinel",
    "__version__": "version",
    "attach": "sentinel",
    "auto_restart": "supervised_run",
    "monitor_job": "monitor",
    "restart_job": "job_submission",
    "run": "supervised_run",
    "submit_job_with_resume": "job_submission",
}


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
