"""Driver, CUDA, NCCL, PyTorch, Python, Ray and further packages are equal on all nodes."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distributions, version

import msgspec

from ray_sentinel import nvidia_smi
from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, failure, ok, warning
from ray_sentinel.doctor.plan import RunPlan

PACKAGES = (
    "torch",
    "ray",
    "numpy",
    "transformers",
    "accelerate",
    "deepspeed",
    "flash-attn",
    "vllm",
    "sglang",
    "verl",
    "lightning",
    "jax",
    "triton",
)
_FATAL = frozenset({"Python", "torch", "ray", "NCCL"})
"""Packages whose versions must be equal: with different ones, pickles or collectives fail."""


class VersionsFacts(msgspec.Struct, frozen=True):
    """Name → version; what is not there is absent."""

    versions: dict[str, str]


class VersionsCheck(Check[VersionsFacts]):
    """Compares; an absent package counts as a difference too."""

    name = "versions"
    about = "software is equal on all nodes"
    facts = VersionsFacts

    def look(self, plan: RunPlan, here: Here) -> VersionsFacts:
        """Read what is installed; nothing is imported."""
        found = {"Python": platform.python_version(), "Linux": platform.release()}
        for name in (*PACKAGES, *plan.packages):
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                continue
        for item in distributions(name=None) if "torch" in found else ():
            # nvidia-nccl-cu12, nvidia-nccl-cu13: torch's wheels bring NCCL as one of these.
            if (item.metadata["Name"] or "").lower().startswith("nvidia-nccl"):
                found["NCCL"] = item.version
        smi = nvidia_smi.ask_once()
        if smi is not None:
            found |= {"NVIDIA driver": smi.driver, "CUDA of the driver": smi.cuda}
        return VersionsFacts(found)

    def judge(self, case: CheckInput[VersionsFacts]) -> Iterable[CheckResult]:
        """One result for each that differs."""
        found = list(_differences(case))
        missing = [
            failure(f"{name} is not installed", f"pip install {name}", host)
            for host, facts in case.seen.items()
            for name in case.plan.packages
            if name not in facts.versions
        ]
        yield from missing
        yield from found
        if not missing and not found:
            yield ok(_shown(case.seen))


def _differences(case: CheckInput[VersionsFacts]) -> Iterator[CheckResult]:
    names = sorted({name for facts in case.seen.values() for name in facts.versions})
    for name in names:
        hosts: dict[str, list[str]] = defaultdict(list)
        for host, facts in case.seen.items():
            hosts[facts.versions.get(name, "none")].append(host)
        if len(hosts) < 2:
            continue
        story = "; ".join(
            f"{value} on {', '.join(who[:4])}{' and others' if len(who) > 4 else ''}"
            for value, who in sorted(hosts.items(), key=lambda pair: len(pair[1]))
        )
        tell = failure if name in _FATAL else warning
        yield tell(f"{name} differs: {story}", "use one image, or one environment, on all nodes")


def _shown(seen: Mapping[str, VersionsFacts]) -> str:
    shown = next((facts.versions for facts in seen.values()), {})
    return "equal: " + ", ".join(f"{name} {value}" for name, value in shown.items())
