"""What a rule is, and how rules are found.

A rule is a subclass of ``Rule`` in a file of ``rules/``. It looks and suggests; it keeps no
state of the cluster and decides nothing: the engine does.
"""

from __future__ import annotations

import abc
import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import msgspec

from ray_sentinel.config import Config, convert
from ray_sentinel.engine import rules
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.errors import ConfigError
from ray_sentinel.model.incident import EvidenceItem, FaultKind, Finding


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of a rule's settings, ``[rules."NAME"]`` in the configuration file."""

    enabled: bool = True


def thresholds(**defaults: float) -> type[Thresholds]:
    """The type of a rule's settings, by their defaults; an int takes whole numbers only."""
    fields = [(name, type(value), value) for name, value in defaults.items()]
    made = msgspec.defstruct("Thresholds", fields, bases=(Thresholds,), frozen=True, kw_only=True)
    return cast("type[Thresholds]", made)


class Rule(abc.ABC):
    """Reads the cluster state and returns findings."""

    name: ClassVar[str]
    Thresholds: ClassVar[type[Thresholds]] = Thresholds

    def __init__(self, thresholds: Any) -> None:
        self.thresholds = thresholds

    @abc.abstractmethod
    def evaluate(self, view: ClusterView, now: float) -> Iterable[Finding]:
        """Every problem that exists now, including those reported before."""


class ProofRule(Rule):
    """Proves something about single ranks, from the state of their processes or from stacks."""

    kind: ClassVar[FaultKind]
    proves: ClassVar[str]
    """What it proves of the ranks, for the summary: "stopped (state T)"."""
    source: ClassVar[str] = "process"
    weight: ClassVar[float] = 6.0
    settled: ClassVar[bool] = True

    def proven(self, job: JobView, told: Sequence[tuple[RankView, str]]) -> Finding:
        """One hard finding about some ranks of a job; ``told`` has a sentence for each rank."""
        names = ", ".join(str(rank.rank.id.rank) for rank, _ in told)
        return Finding(
            rule=self.name,
            job=job.job,
            attempt=job.attempt,
            kind=self.kind,
            severity="critical",
            summary=f"{job.job}: rank {names} {self.proves}",
            suspects=tuple(rank.rank.id for rank, _ in told),
            evidence=tuple(
                EvidenceItem(
                    source=self.source,
                    text=f"rank {rank.rank.id.rank}: {text}",
                    rank=rank.rank.id.rank,
                    weight=self.weight,
                )
                for rank, text in told
            ),
            hard=True,
            settled=self.settled,
        )


def known_rules() -> dict[str, type[Rule]]:
    """Rule name → class, of all modules in ``rules/``."""
    found: dict[str, type[Rule]] = {}
    for info in pkgutil.iter_modules(rules.__path__):
        module = importlib.import_module(f"{rules.__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Rule) and hasattr(value, "name"):
                found[value.name] = value
    return dict(sorted(found.items()))


def load_rules(config: Config) -> list[Rule]:
    """The enabled rules with their thresholds. Raises ConfigError for an unknown rule or key."""
    known = known_rules()
    for name in config.rules:
        if name not in known:
            raise ConfigError(f'unknown rule [rules."{name}"]; known: {", ".join(known)}')
    loaded = []
    for name, kind in known.items():
        raw: Mapping[str, Any] = config.rules.get(name, {})
        thresholds = convert(dict(raw), kind.Thresholds, where=f'[rules."{name}"]', strict=False)
        if thresholds.enabled:
            loaded.append(kind(thresholds))
    return loaded
