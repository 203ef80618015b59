"""The playbook of GPUs' health: what it looks at, its thresholds, what follows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from tests.support.inventory.planted import (
    GPU,
    busy,
    clocked,
    errors,
    warmer,
    weaker,
)
from tests.support.inventory.row import Check, Row
from tests.support.inventory.series import (
    Plant,
    answer,
    cause,
    told,
)
from tests.support.tsdb_scenarios.world import World


def filled(share: float) -> Plant:
    """All GPUs use that share of their memory."""

    def plant(world: World) -> None:
        world.skip.add("hw_gpu_vram_used_bytes")
        for host in world.names:
            for gpu in range(world.gpus):
                used = np.full(world.t.size, share * world.card.vram)
                labels = {"host": host, "gpu": str(gpu)}
                world.extra.append(("hw_gpu_vram_used_bytes", labels, world.times, used))

    return plant


def _summary(name: str, folder: Path) -> None:
    (table,) = answer(GPU).tables
    assert name in dict(table.rows)
    assert "3 nodes, 6 GPUs" in table.title
    assert "no such row" not in dict(table.rows)


ROWS = [
    # GPU health
    Row("gpu.hot", "above 90 degrees", told(GPU, warmer(17), "above 90 °C", below=warmer(12))),
    Row(
        "gpu.throttles",
        "above 100 degrees it throttles",
        told(GPU, warmer(28), "it throttles", below=warmer(17)),
    ),
    Row(
        "gpu.spread",
        "power that differs by more than 50 W",
        told(GPU, weaker(0.9), "more than 50 W", below=weaker(0.99)),
    ),
    Row(
        "gpu.clock",
        "a core clock that drops at once",
        cause(GPU, clocked(0.7), "clock-drop", "node002", below=clocked(0.99)),
    ),
    Row(
        "gpu.memory",
        "more than 95 % of GPU memory",
        told(GPU, filled(0.96), "the next allocation may fail", below=filled(0.94)),
    ),
    Row(
        "gpu.hbm-ce",
        "correctable errors of memory",
        cause(GPU, errors("hw_gpu_ras_umc_ce_total", 1), "degrading-memory", "node002"),
    ),
    Row(
        "gpu.hbm-ce-one",
        "a single one is told, and accuses nobody",
        told(
            GPU,
            errors("hw_gpu_ras_umc_ce_total", 0.011),
            "a few errors",
            below=errors("hw_gpu_ras_umc_ce_total", 0),
        ),
    ),
    Row(
        "gpu.hbm-ue",
        "uncorrectable ones: the hardware playbook",
        told(
            GPU,
            errors("hw_gpu_ras_umc_ue_total", 1),
            "uncorrectable errors",
            "node-hardware-failure",
            below=errors("hw_gpu_ras_umc_ue_total", 0),
        ),
    ),
    Row(
        "gpu.xgmi-ce",
        "correctable errors of a link",
        cause(GPU, errors("hw_gpu_ras_xgmi_ce_total", 1), "degrading-link", "node002"),
    ),
    Row(
        "gpu.pcie-ce",
        "PCIe errors that go on",
        cause(
            GPU,
            errors("hw_gpu_pcie_correctable_total", 5),
            "degrading-link",
            "node002",
            below=errors("hw_gpu_pcie_correctable_total", 0),
        ),
    ),
    Row(
        "gpu.pcie-nonfatal",
        "and non-fatal ones",
        told(GPU, errors("hw_gpu_pcie_nonfatal_total", 1), "non-fatal PCIe errors within the job"),
    ),
    Row(
        "gpu.idle", "less than 80 % in training", told(GPU, busy(70), "below 80 %", below=busy(88))
    ),
    *(
        Row(
            f"gpu.summary-{name.lower().replace(' ', '-')}",
            f"the summary's {name}",
            Check("diagnose: summary", partial(_summary, name)),
        )
        for name in (
            "Temperature",
            "Power",
            "Core clock",
            "VRAM",
            "Utilisation",
            "Memory errors",
            "PCIe errors",
            "Anomalous GPUs",
        )
    ),
]
