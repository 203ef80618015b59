"""ray_sentinel names the rank that hangs a distributed training job on Ray, and says why.

    import ray_sentinel

    sentinel = ray_sentinel.attach()
    for n, batch in enumerate(data):
        ...
        sentinel.step(n)

Importing this costs next to nothing: what a function needs is imported when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_sentinel.sentinel import Sentinel, attach

__version__ = "0.1.0"

__all__ = ["Sentinel", "__version__", "attach"]


def __getattr__(name: str) -> Any:
    if name in ("attach", "Sentinel"):
        from ray_sentinel import sentinel

        return getattr(sentinel, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
