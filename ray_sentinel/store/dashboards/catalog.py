"""All dashboards, and their files."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.errors import InputError
from ray_sentinel.store.dashboards.gpus import GPUS
from ray_sentinel.store.dashboards.grafana import to_json
from ray_sentinel.store.dashboards.host import HOST
from ray_sentinel.store.dashboards.model import Dashboard
from ray_sentinel.store.dashboards.network import NETWORK
from ray_sentinel.store.dashboards.overview import OVERVIEW
from ray_sentinel.store.dashboards.sentinel import SENTINEL
from ray_sentinel.store.dashboards.training import TRAINING
from ray_sentinel.whole_file import write_whole

DASHBOARDS: tuple[Dashboard, ...] = (OVERVIEW, TRAINING, GPUS, NETWORK, HOST, SENTINEL)


def file_name(dashboard: Dashboard) -> str:
    """The name of its file."""
    return f"ray-sentinel-{dashboard.name}.json"


def export(folder: Path) -> list[Path]:
    """Write all dashboards into ``folder``, which is made; files of ours in it are replaced.

    Raises InputError where it cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for dashboard in DASHBOARDS:
            path = folder / file_name(dashboard)
            write_whole(path, to_json(dashboard), mode=0o666)
            written.append(path)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None
    return written
