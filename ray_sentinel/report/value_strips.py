"""How the values of all GPUs compare with their limits: a small histogram for each quantity.

From one GPU to tens of thousands it is the same picture, as wide as a phone (see ``wait_picture``);
the most extreme one is named. The limits are those of ``model.thresholds``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from ray_sentinel.model.health import GpuState, Health
from ray_sentinel.model.thresholds import GPU_HOT, GPU_IDLE
from ray_sentinel.report.line_plot import PlotTick, round_ticks, short
from ray_sentinel.report.words import percent
from ray_sentinel.text import one_line

WIDTH, LEFT, RIGHT = 440, 8, 8
TOP, BARS, BOTTOM = 22, 44, 18
BINS = 53
"""Number of bars."""
LEAST_BAR = 3.0
"""The smallest height of a bar, so that a single GPU among thousands is seen."""
GREATEST = 1e12
"""A value from which on it is a broken sensor's, and is not drawn."""


class ValueBar(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs whose values are in one stretch of the axis."""

    x: float
    y: float
    width: float
    height: float
    beyond: bool
    """The values lie beyond the limit."""
    whole: str
    """The full text, for a tooltip."""


class ValueStrip(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity."""

    title: str
    unit: str
    said: str
    """The middle value, and which GPUs lie furthest from it, in words."""
    bars: tuple[ValueBar, ...]
    ticks: tuple[PlotTick, ...]
    limit: PlotTick | None
    """Where the limit lies, with its label; None where there is no limit."""
    limit_ends: bool
    """The limit's label ends at its line instead of beginning there."""
    width: int = WIDTH
    height: int = TOP + BARS + BOTTOM
    top: int = TOP
    floor: int = TOP + BARS


class _Quantity(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    unit: str
    of: Callable[[GpuState], float | None]
    low: float = 0.0
    high: float
    """The axis reaches at least from ``low`` to ``high``."""
    limit: float | None = None
    below: bool = False
    """Values below the limit lie beyond it, instead of those above."""
    label: str = ""


def _memory(gpu: GpuState) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return 100.0 * gpu.memory_used_bytes / gpu.memory_total_bytes


QUANTITIES = (
    _Quantity(
        title="temperature", unit="°C", of=lambda gpu: gpu.temperature_celsius, low=20.0,
        high=100.0, limit=GPU_HOT.limit, label=f"too hot above {GPU_HOT.limit:.0f} °C",
    ),
    _Quantity(
        title="utilisation", unit="%", of=lambda gpu: gpu.utilization_percent, high=100.0,
        limit=100.0 * GPU_IDLE.limit, below=True, label=f"idle below {percent(GPU_IDLE.limit)}",
    ),
    _Quantity(title="memory in use", unit="%", of=_memory, high=100.0),
    _Quantity(title="power", unit="W", of=lambda gpu: gpu.power_watts, high=100.0),
)  # fmt: skip


def value_strips(told: Health) -> tuple[ValueStrip, ...]:
    """A strip for each quantity that at least one GPU reports."""
    gpus = [(node.host, gpu) for node in told.nodes for gpu in node.gpus]
    found = (_strip(quantity, gpus) for quantity in QUANTITIES)
    return tuple(one for one in found if one is not None)


def _strip(quantity: _Quantity, gpus: Iterable[tuple[str, GpuState]]) -> ValueStrip | None:
    known = [
        (value, f"{host} GPU {gpu.index}")
        for host, gpu in gpus
        if (value := quantity.of(gpu)) is not None and abs(value) < GREATEST
    ]
    if not known:
        return None
    values = sorted(value for value, _ in known)
    levels = round_ticks(min(quantity.low, values[0]), max(quantity.high, values[-1]))
    low, high = levels[0], levels[-1]

    def x(value: float) -> float:
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    width = (high - low) / BINS
    limit = quantity.limit

    def beyond(value: float) -> bool:
        return limit is not None and (value < limit if quantity.below else value > limit)

    places = [(min(int((value - low) / width), BINS - 1), beyond(value)) for value in values]
    counts = Counter(places)
    most = max(Counter(place for place, _ in places).values())

    def bar(place: int, count: int, *, red: bool) -> ValueBar:
        start = low + place * width
        height = max(BARS * count / most, LEAST_BAR)
        # If the limit is within the stretch, the GPUs beyond it are stacked on the others.
        below = BARS * counts[place, False] / most if red else 0.0
        gpus = "GPU" if count == 1 else "GPUs"
        return ValueBar(
            x=x(start), y=round(TOP + BARS - below - height, 1), height=round(height, 1),
            width=round((WIDTH - LEFT - RIGHT) / BINS - 1, 1), beyond=red,
            whole=f"{count} {gpus} from {start:.3g} to {start + width:.3g} {quantity.unit}",
        )  # fmt: skip

    at = None if limit is None else PlotTick(x(limit), quantity.label)
    return ValueStrip(
        title=quantity.title,
        unit=quantity.unit,
        said=_describe(quantity, known, values[len(values) // 2]),
        bars=tuple(bar(place, counts[place, red], red=red) for place, red in sorted(counts)),
        ticks=tuple(PlotTick(x(level), short(level)) for level in levels),
        limit=at,
        limit_ends=at is not None and at.place > WIDTH / 2,
    )


def _describe(quantity: _Quantity, known: list[tuple[float, str]], middle: float) -> str:
    if len(known) == 1:
        return f"{known[0][1]}: {middle:.3g} {quantity.unit}"
    furthest = (min if quantity.below else max)(known, key=lambda pair: pair[0])
    word = "lowest" if quantity.below else "highest"
    most, who = furthest
    return one_line(
        f"usually {middle:.3g} {quantity.unit}, {word} {most:.3g} {quantity.unit} ({who})", 200
    )
