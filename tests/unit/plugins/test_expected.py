"""Every collector on every tree prints exactly what is kept in ``expected/<tree>.txt``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ray_sentinel.api import Collector, Context, Event, NoData, Skip
from ray_sentinel_plugins.amdgpu import AmdgpuCollector
from ray_sentinel_plugins.host import HostCollector
from ray_sentinel_plugins.kernel_log import KernelLogCollector
from ray_sentinel_plugins.nvml import NvmlCollector
from ray_sentinel_plugins.rdma import RdmaCollector

COLLECTORS = (AmdgpuCollector, HostCollector, KernelLogCollector, NvmlCollector, RdmaCollector)
TREES = Path(__file__).parents[2] / "fixtures" / "trees"
EXPECTED = Path(__file__).parent / "expected"


def shown(kind: type[Collector], context: Context, series: Callable[..., dict[str, float]]) -> str:
    try:
        items = list(kind(context).collect())
    except (Skip, NoData) as reason:
        return f"# {kind.name}: {type(reason).__name__}\n"
    lines = [f"# {kind.name}"]
    lines += [f"{name} {value!r}" for name, value in series(items).items()]
    lines += [_event(item) for item in items if isinstance(item, Event)]
    return "\n".join(lines) + "\n"


def _event(event: Event) -> str:
    attributes = " ".join(f"{key}={value!r}" for key, value in event.attributes.items())
    return f"# event {event.time!r} {event.kind} {event.severity} {attributes}"


@pytest.mark.parametrize("name", sorted(path.name for path in TREES.iterdir() if path.is_dir()))
def test_tree(
    name: str,
    context: Callable[[Path], Context],
    series: Callable[[Iterable[object]], dict[str, float]],
    update_expected: bool,
) -> None:
    printed = "".join(shown(kind, context(TREES / name), series) for kind in COLLECTORS)
    path = EXPECTED / f"{name}.txt"
    if update_expected:
        path.write_text(printed)
    assert printed == path.read_text()
