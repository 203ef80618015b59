"""Facts from a job's own logs that help to interpret its series."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.diagnosis import Figure

PLANNED = (
    "max_steps", "max_train_steps", "num_train_steps", "train_iters", "total_training_steps",
    "total_steps", "steps",
)  # fmt: skip
"""The settings in which Transformers and Lightning, Accelerate, MaxText, Megatron, verl and others
hold their number of steps. (MaxText's ``steps`` comes last: elsewhere it may be another number.)"""
EPOCHS = (
    "num_train_epochs", "max_epochs", "total_epochs", "num_epochs", "train_epochs", "epochs",
)  # fmt: skip
"""The settings in which Transformers and Accelerate, Lightning, verl and others hold their number
of epochs."""
WARM_UP = (
    "warmup_steps", "num_warmup_steps", "lr_warmup_steps", "lr_warmup_iters",
    "learning_rate_warmup_steps",
)  # fmt: skip
WARM_UP_SHARE = ("warmup_steps_fraction", "warmup_ratio", "lr_warmup_fraction", "lr_warmup_ratio")
"""The settings in which MaxText, Transformers and Megatron hold the warm-up as a share of all
steps."""
_ABOVE = ("", "trainer.")
"""Prefixes of the settings: NeMo, verl and Lightning's command line keep theirs in a section."""


class Total(msgspec.Struct, frozen=True):
    """A number of steps that a progress bar or a saved trainer state gives as the end."""

    total: float
    step: float
    """The last step that the bar or the state showed."""
    per_epoch: bool = False
    """``total`` and ``step`` count within one epoch."""
    saved: bool = False
    """The number is from a trainer state that was saved with a checkpoint."""


class LoggedStep(msgspec.Struct, frozen=True):
    """A ``completed step:`` line."""

    step: float
    seconds: float | None = None
    loss: float | None = None


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from the main log, the ranks' logs and Ray's worker logs; empty without any."""

    config: dict[str, str] = {}
    """The settings in lines ``Config param NAME: VALUE``."""
    arguments: dict[str, str] = {}
    """``PASSTHROUGH_ARGS``, ``NNODES`` and similar variables, with their values."""
    steps: tuple[LoggedStep, ...] = ()
    failure: str = ""
    """The class of failure that the log itself names: "heartbeat-timeout", "oom-host", ..."""
    crash_at: float | None = None
    heartbeat_timeout: float | None = None
    accused: tuple[str, ...] = ()
    failed_checkpoint: float | None = None
    restored_step: float | None = None
    init_waves: dict[str, int] = {}
    """Host → number of waves in which it initialised communicators."""
    worker_lines: dict[str, int] = {}
    """What the workers' logs repeat → how often, over all workers."""
    modules: int | None = None
    """Number of modules that XLA dumped."""
    summary: bool = False
    """The log ends with a JOB SUMMARY."""
    failed: bool = False
    """The job failed, as its own summary or triage says."""
    transport: str = ""
    """The transport that NCCL reports: "socket" or "rdma"."""
    ended: str = ""
    """What triage of the logs calls the job: "completed", "running", ..."""
    totals: tuple[Total, ...] = ()
    """The ends that progress bars and saved trainer states give, including those of bars that are
    not the training's."""
    facts: tuple[Figure, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def planned_steps(self) -> float | None:
        """How many steps the job was to do, by its configuration; None if it does not say."""
        return self._number(PLANNED)

    @property
    def planned_epochs(self) -> float | None:
        """How many epochs the job was to do, by its configuration; None if it does not say."""
        return self._number(EPOCHS)

    @property
    def warm_up_steps(self) -> float | None:
        """Steps over which the learning rate is to rise, by the configuration; None without."""
        steps = self._number(WARM_UP)
        if steps is not None:
            return steps
        share = self._number(WARM_UP_SHARE)
        planned = self.planned_steps
        return share * planned if share is not None and share < 1 and planned is not None else None

    @property
    def first_of_both(self) -> bool:
        """Whether the job ends when it reaches either its steps or its epochs, as with Lightning.

        With Transformers, epochs do not count if a number of steps is set.
        """
        return any(f"{above}max_epochs" in self._settings for above in _ABOVE)

    @property
    def _settings(self) -> dict[str, str]:
        given = {name: value for name, value in self.arguments.items() if value}
        return {**self.config, **given}

    def _number(self, names: tuple[str, ...]) -> float | None:
        settings = self._settings
        for name in (above + name for name in names for above in _ABOVE):
            try:
                found = float(settings.get(name, ""))
            except ValueError:
                continue
            # Transformers and Lightning write -1 where the other setting counts.
            if 0 < found < float("inf"):
                return found
        return None

    @property
    def checkpoint_period(self) -> float | None:
        """``checkpoint_period`` of the arguments or the configuration, in steps."""
        return self._number(("checkpoint_period",))
