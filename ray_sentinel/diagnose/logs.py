"""What a job's own logs say that bears on the series: read from text that was handed in."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.diagnosis import Fact

PLANNED = (
    "max_steps", "max_train_steps", "num_train_steps", "train_iters", "total_steps", "steps",
)  # fmt: skip
"""What Transformers and Lightning, Accelerate, MaxText, Megatron and others call their number of
steps. (MaxText's ``steps`` comes last: elsewhere it may be another number.)"""


class LoggedStep(msgspec.Struct, frozen=True):
    """A ``completed step:`` line."""

    step: float
    seconds: float | None = None
    loss: float | None = None


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from the main log, the ranks' logs and Ray's worker logs. Empty where there is none."""

    config: dict[str, str] = {}
    """``Config param NAME: VALUE`` lines."""
    arguments: dict[str, str] = {}
    """``PASSTHROUGH_ARGS``, ``NNODES`` and their like."""
    steps: tuple[LoggedStep, ...] = ()
    failure: str = ""
    """The class of failure that the log itself names: "heartbeat-timeout", "oom-host", ..."""
    crash_at: float | None = None
    heartbeat_timeout: float | None = None
    accused: tuple[str, ...] = ()
    failed_checkpoint: float | None = None
    restored_step: float | None = None
    init_waves: dict[str, int] = {}
    """Host → waves of communicator initialisation."""
    recompilations: int = 0
    modules: int | None = None
    """Modules that XLA dumped."""
    summary: bool = False
    """The log ends with a JOB SUMMARY."""
    ended: str = ""
    """What triage of the logs calls the job: "completed", "running", ..."""
    facts: tuple[Fact, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def planned_steps(self) -> float | None:
        """How many steps the job was to do, by its configuration; None where it does not say."""
        for name in PLANNED:
            try:
                planned = float(self.arguments.get(name) or self.config.get(name, ""))
            except ValueError:
                continue
            # Transformers writes -1 where the epochs tell.
            if 0 < planned < float("inf"):
                return planned
        return None

    @property
    def checkpoint_period(self) -> float | None:
        """``checkpoint_period`` of the configuration, in steps."""
        text = self.config.get("checkpoint_period") or self.arguments.get("checkpoint_period", "")
        try:
            period = float(text)
        except ValueError:
            return None
        return period if period > 0 else None
