"""From where everything is drawn: uniform between the two ends unless said otherwise.

Power levels are those that public documents and people on call report for the models: at work, in
a collective's polling loop, at rest. A card keeps its own offset for the whole job.
"""

from __future__ import annotations

from dataclasses import dataclass

Range = tuple[float, float]


@dataclass(frozen=True)
class Model:
    """A GPU model. Watts, MHz, °C, bytes."""

    name: str
    work: Range
    wait: Range
    rest: Range
    clock: float
    temperature: Range
    vram: float
    vendor: str


MODELS = {
    "MI355X": Model("MI355X", (840, 980), (285, 325), (245, 270), 2400, (62, 80), 288e9, "amd"),
    "MI300X": Model("MI300X", (560, 700), (165, 215), (125, 150), 2100, (58, 78), 192e9, "amd"),
    "H100": Model("H100", (520, 680), (125, 190), (70, 110), 1980, (48, 68), 80e9, "nvidia"),
    "B200": Model("B200", (760, 960), (200, 290), (140, 180), 1965, (45, 66), 180e9, "nvidia"),
}

INTERVAL = (10.0, 15.0)
"""Seconds between scrapes: one of the two."""
STEP_SECONDS: Range = (4.0, 24.0)
STEP_NOISE: Range = (0.004, 0.03)
"""Share of the step time, standard deviation."""
CARD_OFFSET: Range = (-0.04, 0.04)
"""Share of the power at work by which a card differs from its model's draw."""
POWER_NOISE: Range = (0.008, 0.03)
UTILISATION_AT_WORK: Range = (93.0, 100.0)
UTILISATION_WAITING: Range = (98.0, 100.0)
TEMPERATURE_LAG: Range = (40.0, 120.0)
"""Seconds, first order."""
STARTUP: Range = (120.0, 480.0)
"""Seconds between the first scrape and the first step."""
CHECKPOINT_STEPS = (25, 40, 50, 80, 100)
"""Steps between checkpoints: one of these."""
CHECKPOINT_SECONDS: Range = (40.0, 240.0)
CHECKPOINT_POWER: Range = (0.30, 0.50)
"""Share of the power at work during a save."""
CHECKPOINT_IO: Range = (15.0, 75.0)
CHECKPOINT_TCP: Range = (400.0, 2500.0)
"""TCP retransmits per second on writing hosts during a save."""
BOOT_OLD_RDMA: Range = (1e5, 9e7)
BOOT_OLD_TCP: Range = (1e4, 1e6)
TCP_BACKGROUND: Range = (0.0, 2.0)
RDMA_BACKGROUND: Range = (0.0, 0.05)
PROCS_RUNNING: Range = (12.0, 40.0)
MEMORY_TOTAL = (1.0e12, 2.0e12)
MEMORY_SHARE: Range = (0.25, 0.5)
"""Of the host's memory, used in training."""
LOSS: Range = (1.8, 3.0)
CYCLE: Range = (0.05, 0.4)
"""Seconds of an exporter's collection."""
