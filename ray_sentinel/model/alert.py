"""What telemetry shows to be wrong with a device, a host or a training, while nothing hangs yet."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.incident import FaultKind, Severity


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of a telemetry rule. It names what it is about, not who is to blame for a hang;
    a verdict uses it as evidence."""

    rule: str
    severity: Severity
    text: str
    kind: FaultKind = "unknown"
    """What it would be, were the job to stop over it; "unknown" where it explains no stop."""
    job: str = ""
    host: str = ""
    gpu: str = ""
    port: str = ""
    """Of a network device: "mlx5_0/1"."""
    ranks: tuple[int, ...] = ()
    """The job's ranks that have the GPU; known where it is told for one job."""
    since: float = 0.0
    """When it began, on the coordinator's clock."""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What it is about: two alerts with one key are the same one going on."""
        return self.rule, self.job, self.host, self.gpu, self.port

    @property
    def place(self) -> str:
        """For people: "node1 GPU 3"."""
        parts = (self.host, f"GPU {self.gpu}" if self.gpu else "", self.port)
        return " ".join(part for part in parts if part)
