"""The GPUs are there, and nobody computes on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ray_sentinel import nvidia_smi
from ray_sentinel.doctor.check import (
    Check,
    CheckInput,
    CheckResult,
    Here,
    failure,
    ok,
    skipped,
    warning,
)
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.model.thresholds import GPU_LOADED

_AMD = "0x1002"


class GpuCard(msgspec.Struct, frozen=True):
    """One GPU, of either maker."""

    name: str
    used_bytes: int | None = None
    programs: tuple[str, ...] = ()


class GpusFacts(msgspec.Struct, frozen=True):
    """The GPUs of a node."""

    cards: tuple[GpuCard, ...]


class GpusCheck(Check[GpusFacts]):
    """Counts what the driver shows, and compares it with Ray and with the plan."""

    name = "gpus"
    about = "GPUs are there, free, and equal on all nodes"
    facts = GpusFacts

    def look(self, plan: RunPlan, here: Here) -> GpusFacts:
        """Ask nvidia-smi, and sysfs for AMD's."""
        smi = nvidia_smi.ask_once()
        cards = [
            GpuCard(
                gpu.label,
                gpu.state.memory_used_bytes,
                tuple(f"{one.pid} {one.name}".strip() for one in gpu.processes),
            )
            for gpu in (smi.gpus if smi else ())
        ]
        return GpusFacts((*cards, *_amd(here)))

    def judge(self, case: CheckInput[GpusFacts]) -> Iterable[CheckResult]:
        """Too few, lost to Ray, uneven, or in use."""
        counts = {host: len(facts.cards) for host, facts in case.seen.items()}
        total = sum(counts.values())
        wanted = case.plan.gpus
        if not total and not wanted:
            yield skipped("there are no GPUs, and none are expected")
            return
        if wanted is not None and total < wanted:
            yield failure(
                f"{total} of {wanted} expected GPUs are there ({_by_host(counts)})",
                "run `nvidia-smi` where they are missing; in Kubernetes, ask for nvidia.com/gpu",
            )
        else:
            yield ok(f"{total} GPU{'s' * (total != 1)} ({_by_host(counts)})")
        yield from _uneven(counts)
        yield from _ray(case, counts)
        for host, facts in case.seen.items():
            yield from _busy(host, facts)


def _uneven(counts: dict[str, int]) -> Iterable[CheckResult]:
    usual = Counter(counts.values()).most_common(1)[0][0]
    for host, count in counts.items():
        if 0 < count < usual:
            yield failure(
                f"{count} GPUs, where the other nodes have {usual}",
                "`nvidia-smi -L` and `lspci | grep -i nvidia` show whether one fell off the bus",
                host,
            )


def _ray(case: CheckInput[GpusFacts], counts: dict[str, int]) -> Iterable[CheckResult]:
    if case.cluster is None:
        return
    for node in case.cluster.joined:
        have = counts.get(node.host)
        if have is not None and node.gpus < have:
            yield warning(
                f"Ray offers {node.gpus:g} of the {have} GPUs",
                f"start Ray there with --num-gpus={have}",
                node.host,
            )
    offered = sum(node.gpus for node in case.cluster.joined)
    if case.cluster.free_gpus < offered:
        yield warning(
            f"{offered - case.cluster.free_gpus:g} of {offered:g} GPUs are reserved by somebody",
            "`ray list placement-groups` and `ray list actors` show by whom",
        )


def _busy(host: str, facts: GpusFacts) -> Iterable[CheckResult]:
    for card in facts.cards:
        who = ", ".join(card.programs)
        if who or GPU_LOADED.crossed(card.used_bytes or 0):
            used = f"{(card.used_bytes or 0) / (1 << 30):.1f} GiB of {card.name} are in use"
            yield failure(
                f"{used} by {who}" if who else f"{used} by a process that is not visible here",
                "end the old run, or choose other GPUs with CUDA_VISIBLE_DEVICES",
                host,
            )


def _amd(here: Here) -> Iterable[GpuCard]:
    """amdgpu's files (kernel documentation, "AMDGPU memory usage information")."""
    for device in sorted((here.sys / "class/drm").glob("card[0-9]*/device")):
        vendor = device / "vendor"
        # A display connector (card0-HDMI-A-1) links to the same device.
        if "-" in device.parent.name or not vendor.is_file():
            continue
        if vendor.read_text().strip() == _AMD and (used := device / "mem_info_vram_used").is_file():
            yield GpuCard(f"AMD {device.resolve().name}", int(used.read_text()))


def _by_host(counts: dict[str, int]) -> str:
    shown = [f"{host}: {count}" for host, count in list(counts.items())[:8]]
    return ", ".join(shown) + (", ..." if len(counts) > 8 else "")
