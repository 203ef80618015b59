"""The host: network, CPU, memory, disks, pressure, cgroup, D state, mounts and identity."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.api import Collector, Context, NoData, Options, Sample, Seconds
from ray_sentinel_plugins._files import files_of
from ray_sentinel_plugins._host import (
    cgroup,
    disks,
    dstate,
    identity,
    kernel,
    network,
    pressure,
)
from ray_sentinel_plugins._host.mounts import DEADLINE, Mounts
from ray_sentinel_plugins._host.mounts import METRICS as MOUNT_METRICS


class HostOptions(Options, frozen=True):
    """``[collectors.host]``"""

    mounts: tuple[str, ...] = ()
    """Mount points to watch; if empty, every file system that stores something."""
    mount_deadline: Seconds = DEADLINE
    """Seconds that one mount has to answer."""


class HostCollector(Collector):
    """Everything that /proc and /sys tell about the machine itself."""

    name = "host"
    Options = HostOptions
    metrics = (
        *network.METRICS,
        *kernel.METRICS,
        *disks.METRICS,
        *pressure.METRICS,
        *cgroup.METRICS,
        *identity.METRICS,
        *dstate.METRICS,
        *MOUNT_METRICS,
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        options: HostOptions = context.options or HostOptions()
        self._files = files_of(context, self.log)
        self._mounts = Mounts(options.mounts, options.mount_deadline)

    def collect(self) -> Iterator[Sample]:
        """One sample for each fact that can be read. Raises NoData if there is none at all."""
        files, proc, sys = self._files, self.context.proc, self.context.sys
        samples = [
            *network.read(files, proc),
            *kernel.read(files, proc),
            *disks.read(files, proc),
            *pressure.read(files, proc),
            *cgroup.read(files, proc, sys),
            *identity.read(files, proc, sys),
            *dstate.read(files, proc, {rank.process.pid for rank in self.context.ranks}),
            *self._mounts.read(files, proc),
        ]
        if not samples:
            raise NoData(f"nothing of this host can be read under {proc} and {sys}")
        yield from samples
