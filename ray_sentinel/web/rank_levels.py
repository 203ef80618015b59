"""What the GPU of each rank does, as the page colours its cells: in a few levels, so that few of
them change in a second, and only while somebody has chosen that colour."""

from __future__ import annotations

from typing import Any

from ray_sentinel.model.gpus import GpuQuantity, RankGpus
from ray_sentinel.model.status import Status
from ray_sentinel.web.questions import UnknownQuestion, fields

WIDTHS: dict[GpuQuantity, float] = {"utilisation": 0.1, "power": 50.0}
"""The quantities that ranks can be coloured by, and how much of each is a level (ratio, watts)."""
STALE_SECONDS = 30.0
"""Age from which a value is not shown any more; agents send every five."""
STALE = -1


def chosen_quantity(query: str) -> GpuQuantity | None:
    """That of ``gpus=QUANTITY``; None without one. Raises ``UnknownQuestion``."""
    wanted = fields(query).get("gpus", "")
    if not wanted:
        return None
    for quantity in WIDTHS:
        if quantity == wanted:
            return quantity
    raise UnknownQuestion(f"?gpus= is one of {', '.join(WIDTHS)}")


def in_levels(status: Status, told: RankGpus) -> dict[str, Any]:
    """For each job of ``status`` the level of each rank's GPU, in the order of its ranks: None
    where none is known, ``STALE`` where it was reported too long ago. Level N goes from N times
    ``width`` up to the next."""
    width, levels = WIDTHS[told.quantity], {}
    for host in told.hosts:
        for pid, value, age in zip(host.pids, host.values, host.ages, strict=True):
            level = STALE if age > STALE_SECONDS else _level(value, told.quantity, width)
            levels[host.host, pid] = level
    jobs = [[levels.get((rank.host, rank.pid)) for rank in job.ranks] for job in status.jobs]
    return {"quantity": told.quantity, "width": width, "jobs": jobs}


def _level(value: float, quantity: GpuQuantity, width: float) -> int:
    # A ratio of 1.0 is of the last level: it has none of its own.
    most = round(1.0 / width) - 1 if quantity == "utilisation" else None
    level = max(0, int(value / width + 1e-9))
    return level if most is None else min(level, most)
