"""Where there are EFA devices, NCCL can use them: else it silently falls back to TCP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

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

USUAL = (
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/ofi-nccl/lib",
    "/opt/aws-ofi-nccl/lib",
)
"""Paths at which Amazon's installers put the plugin."""
SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib")
_PLUGINS = ("libnccl-net-ofi.so", "libnccl-net.so", "libnccl-net-aws-ofi.so")


class EfaFacts(msgspec.Struct, frozen=True):
    """What a node has for EFA."""

    devices: tuple[str, ...]
    plugin: str
    """Path of the plugin on the loader's path; empty if there is none."""
    off_path: str
    """Path of a plugin that is installed outside the loader's path; empty if there is none."""
    net: str
    """The value of ``NCCL_NET``."""


class EfaCheck(Check[EfaFacts]):
    """Looks for devices, the plugin, and the variable."""

    name = "efa"
    about = "NCCL finds the EFA plugin"
    facts = EfaFacts

    def look(self, plan: RunPlan, here: Here) -> EfaFacts:
        """Devices in sysfs, libraries on LD_LIBRARY_PATH."""
        path = [item for item in here.environ.get("LD_LIBRARY_PATH", "").split(":") if item]
        return EfaFacts(
            devices=tuple(_devices(here.sys)),
            plugin=_first((*path, *SYSTEM)),
            off_path=_first(USUAL),
            net=here.environ.get("NCCL_NET", ""),
        )

    def judge(self, case: CheckInput[EfaFacts]) -> Iterable[CheckResult]:
        """A device without plugin, a plugin without device, nodes that differ."""
        wanting = [f for f in case.seen.values() if f.devices or _wants_ofi(f.net)]
        if not wanting:
            yield skipped("there is no EFA device, and NCCL_NET does not ask for one")
            return
        found = [
            result for host, facts in case.seen.items() for result in _of_node(host, facts, case)
        ]
        yield from found or [ok(f"{wanting[0].plugin} is found, NCCL_NET={wanting[0].net}")]


def _of_node(host: str, facts: EfaFacts, case: CheckInput[EfaFacts]) -> Iterator[CheckResult]:
    others = any(other.devices for other in case.seen.values())
    if not facts.devices and (others or _wants_ofi(facts.net)):
        yield failure(
            "there is no EFA device here, and NCCL is to use it",
            "ask for vpc.amazonaws.com/efa in the pod, or attach an EFA interface to the instance",
            host,
        )
        return
    if facts.devices and not facts.plugin:
        where = str(Path(facts.off_path).parent) if facts.off_path else USUAL[0]
        seen = f"{facts.off_path} is not on LD_LIBRARY_PATH" if facts.off_path else "no plugin"
        yield failure(
            f"EFA is there ({', '.join(facts.devices)}), but NCCL finds no OFI plugin: {seen}",
            f"export LD_LIBRARY_PATH={where}:$LD_LIBRARY_PATH before Ray is started"
            + ("" if facts.off_path else ", after installing aws-ofi-nccl"),
            host,
        )
    elif facts.devices and not _wants_ofi(facts.net):
        value = f"NCCL_NET={facts.net}" if facts.net else "NCCL_NET is not set"
        tell = failure if facts.net.lower() in ("socket", "ib") else warning
        yield tell(
            f"EFA is there, but {value}: NCCL may fall back to TCP without a word",
            'export NCCL_NET=ofi (or "AWS Libfabric" with plugins before 1.6), and look for '
            "`NET/OFI` in the log with NCCL_DEBUG=INFO",
            host,
        )


def _wants_ofi(net: str) -> bool:
    return net.lower() in ("ofi", "aws libfabric")


def _devices(sys: Path) -> Iterator[str]:
    for device in sorted((sys / "class/infiniband").glob("*")):
        driver = device / "device/driver"
        # Where the driver cannot be seen (a container), the name is all there is.
        name = driver.readlink().name if driver.is_symlink() else device.name[:3]
        if name == "efa":
            yield device.name


def _first(folders: Iterable[str]) -> str:
    for folder in folders:
        for name in _PLUGINS:
            if (found := Path(folder) / name).exists():
                return str(found)
    return ""
