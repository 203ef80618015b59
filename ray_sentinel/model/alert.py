"""Faults of a device, a host or a training in the telemetry, while nothing hangs yet."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.incident import FaultKind, Severity


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of a telemetry rule. It names what it is about, not who is to blame for a hang; a
    verdict uses it as evidence."""

    rule: str
    severity: Severity
    text: str
    kind: FaultKind = "unknown"
    """The kind of fault if the job stopped over it; "unknown" where it would explain no stop."""
    job: str = ""
    host: str = ""
    gpu: str = ""
    port: str = ""
    """The port of a network device, such as "mlx5_0/1"; otherwise empty."""
    ranks: tuple[int, ...] = ()
    """The job's ranks that use the GPU; known where the alert is about one job."""
    since: float = 0.0
    """When it began, on the coordinator's clock."""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Identifies what it is about: two alerts with the same key are one that persists."""
        return self.rule, self.job, self.host, self.gpu, self.port

    @property
    def place(self) -> str:
        """The place for people: "node1 GPU 3"."""
        parts = (self.host, f"GPU {self.gpu}" if self.gpu else "", self.port)
        return " ".join(part for part in parts if part)
