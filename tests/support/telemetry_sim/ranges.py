"""From where everything is drawn, written down before the rules were run on it."""

from __future__ import annotations

Range = tuple[float, float]

# name as the driver gives it; watts at work, polling for peers, at rest; core clock in MHz; °C
CARDS: dict[str, tuple[Range, Range, Range, float, Range]] = {
    "NVIDIA H100 80GB HBM3": ((500, 690), (120, 185), (65, 110), 1980, (48, 68)),
    "NVIDIA H200": ((520, 690), (125, 190), (70, 115), 1980, (46, 66)),
    "NVIDIA B200": ((740, 960), (190, 290), (135, 180), 1965, (45, 66)),
    "NVIDIA A100-SXM4-80GB": ((290, 395), (75, 110), (48, 68), 1410, (45, 62)),
    "AMD Instinct MI300X": ((560, 700), (165, 215), (125, 150), 2100, (58, 72)),
    "AMD Instinct MI355X": ((840, 980), (285, 325), (245, 270), 2400, (60, 72)),
    "Unheard-of 9000": ((400, 500), (100, 140), (60, 80), 1500, (50, 65)),
}
CARD_OFFSET: Range = (-0.05, 0.05)
"""Share of the power at work by which a card differs from the others of its job."""
POWER_NOISE: Range = (0.01, 0.05)
SPIKE_CHANCE: Range = (0.0, 0.03)
"""Of a reading of one noisy sensor that is nonsense."""
STEP_SECONDS: Range = (0.4, 4.0)
COLLECT_SECONDS: Range = (4.0, 12.0)
"""Between two runs of a collector; values of the moment are sent until the next."""
THROTTLED_CLOCK: Range = (0.45, 0.72)
CAPPED_POWER: Range = (0.4, 0.65)
HOT: Range = (88.0, 99.0)
BOOT_OLD: Range = (10.0, 9e8)
"""What a counter shows before the job began."""
RETRANSMITS_USUAL: Range = (0.0, 3.0)
RETRANSMITS_BAD: Range = (300.0, 20000.0)
"""Packets per second."""
CNP_USUAL: Range = (0.0, 200.0)
CNP_BAD: Range = (15000.0, 90000.0)
TCP_SAVE: Range = (400.0, 2500.0)
"""Segments a second while hosts save."""
TCP_STORM: Range = (3000.0, 20000.0)
ERRORS: Range = (2.0, 60.0)
"""New errors of a counter that should have none."""
NVLINK_ERRORS: Range = (300.0, 9e4)
RUNNABLE: Range = (6.0, 40.0)
RUNNABLE_EXTRA: Range = (60.0, 400.0)
IO_FULL: Range = (72.0, 98.0)
IO_SAVE: Range = (20.0, 80.0)
SAVE_SECONDS: Range = (15.0, 60.0)
MEMORY_FULL: Range = (30.0, 80.0)
LEAK_MINUTES: Range = (6.0, 10.0)
"""In which a leak takes what is left."""
BLOCKED: Range = (6.0, 40.0)
DISK_LEFT: Range = (0.001, 0.02)
LOSS: Range = (1.5, 4.0)
LOSS_NOISE: Range = (0.01, 0.06)
DIVERGED: Range = (3.0, 20.0)
GRADIENT: Range = (0.2, 2.0)
SPIKE: Range = (30.0, 500.0)
SLOWER: Range = (1.2, 2.0)
"""Of a step, where throughput has regressed."""
ANSWERS: Range = (0.1, 200.0)
"""Requests a second that a server answers."""
