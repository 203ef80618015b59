"""No GPU is in trouble already: uncorrected ECC, rows to be remapped, a reset that is asked for,
heat before anything runs on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
from ray_sentinel.evidence.node.nvidia_smi import SmiGpu
from ray_sentinel.model.thresholds import GPU_HOT, GPU_UNCORRECTED


class GpuErrorsFacts(msgspec.Struct, frozen=True):
    """The GPUs of a node."""

    gpus: tuple[SmiGpu, ...]


class GpuErrorsCheck(Check[GpuErrorsFacts]):
    """Reads the driver's counters."""

    name = "gpu-errors"
    about = "no GPU has counted errors, or is too hot"
    facts = GpuErrorsFacts

    def look(self, plan: RunPlan, here: Here) -> GpuErrorsFacts | None:
        """Ask nvidia-smi."""
        smi = nvidia_smi.ask_once()
        return GpuErrorsFacts(smi.gpus) if smi else None

    def judge(self, case: CheckInput[GpuErrorsFacts]) -> Iterable[CheckResult]:
        """Judge each GPU by itself."""
        if not any(facts.gpus for facts in case.seen.values()):
            yield skipped("there is no NVIDIA GPU to ask")
            return
        found = [
            result
            for host, facts in case.seen.items()
            for gpu in facts.gpus
            for result in _errors(host, gpu)
        ]
        yield from found or [ok("no GPU has uncorrected errors, waits for a reset, or is too hot")]


def _errors(host: str, gpu: SmiGpu) -> Iterator[CheckResult]:
    named = gpu.label
    if gpu.remap_failed:
        yield failure(
            f"{named}: a row of its memory could not be remapped",
            "leave the node out, and have the GPU exchanged",
            host,
        )
    if gpu.recovery:
        yield failure(
            f"{named}: the driver asks for: {gpu.recovery}",
            "drain the node, then `nvidia-smi --gpu-reset` or reboot, as it asks",
            host,
        )
    if gpu.remap_pending or gpu.retire_pending:
        yield warning(
            f"{named}: bad memory waits to be taken out of use",
            "drain the node, then `nvidia-smi --gpu-reset`",
            host,
        )
    if GPU_UNCORRECTED.crossed(gpu.ecc_uncorrected or 0):
        yield warning(
            f"{named}: {gpu.ecc_uncorrected} uncorrected memory errors since the driver was loaded",
            "`nvidia-smi -q -d ECC` shows where; `dcgmi diag -r 3` tells whether it is broken",
            host,
        )
    if GPU_HOT.crossed(gpu.state.temperature_celsius or 0.0):
        yield warning(
            f"{named} is at {gpu.state.temperature_celsius:.0f} °C: {GPU_HOT.phrase}",
            "look at fans, airflow and the cooling of the rack",
            host,
        )
