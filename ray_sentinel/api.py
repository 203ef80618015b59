"""The only module that authors of collectors and exporters import.

A collector is one class in one file::

    from ray_sentinel.api import Collector, Metric

    LOAD = Metric("hw_load1", "gauge", "Load average over one minute.")

    class LoadCollector(Collector):
        name = "load"

        def collect(self):
            yield LOAD(parse_loadavg((self.context.proc / "loadavg").read_text()))

It runs in a process of its own, under a deadline, at its own interval. It never times itself, never
sets the ``host`` label, and never catches what it cannot mend: the runner counts and reports.
"""

from __future__ import annotations

import abc
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from ray_sentinel.model.identity import Rank
from ray_sentinel.model.metrics import CollectorStatus, Event, Family, Metric, Sample
from ray_sentinel.model.ray_cluster import DeadActor, RayCluster, RayNodeState

API_VERSION = 1

__all__ = [
    "API_VERSION",
    "Absent",
    "Collector",
    "CollectorStatus",
    "Context",
    "DeadActor",
    "Event",
    "Exporter",
    "Family",
    "Metric",
    "NoData",
    "Options",
    "RayCluster",
    "RayNodeState",
    "Sample",
    "Seconds",
    "Skip",
]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
"""Type of a setting that is a duration in seconds; 0, negative numbers and NaN are refused."""


class Skip(Exception):
    """Raise to be left out for the rest of this process's life: the hardware is not there.

    Raised by ``__init__`` or ``collect``; its message is what ``plugins list`` shows.
    """


class NoData(Exception):
    """Raise from ``collect`` when nothing is new, and nothing is wrong: the last values stay."""


class Absent(NoData):
    """Raise from ``collect`` when there is nothing to be measured now: the last values are
    dropped."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of a collector's own settings, ``[collectors.NAME]`` in the configuration file."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a collector may use. Roots are injected so that it reads any captured tree."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    host: str = ""
    options: Any = None
    """The settings as an instance of the collector's ``Options``."""
    state_dir: Path | None = None
    """A folder of the collector's own that outlives its process; None when it is run once by
    hand."""
    ranks: tuple[Rank, ...] = ()
    """The ranks on this node when the run began."""
    log_dir: Path | None = None
    environ: Mapping[str, str] = os.environ
    handed_on: float | None = None
    """``time.monotonic()`` of the last moment at which a Prometheus took what is served with a time
    of its own; None if none has yet."""
    cluster: RayCluster | None = None
    """What Ray's control store said, for a collector that ``wants_cluster``; None elsewhere than on
    the head, and before the store was first asked."""
    live: bool = True
    """Whether this machine is read; if False, it is a captured tree, and only what is in the tree
    may be read."""


class Collector(abc.ABC):
    """Reads one subject and yields samples and events."""

    name: ClassVar[str]
    interval: ClassVar[float] = 10.0
    """Seconds between two runs; the configuration may change it."""
    deadline: ClassVar[float] = 5.0
    """Seconds after which a run is given up and the process is killed."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """Declarations of the families that it may yield; ``dynamic`` covers those that cannot be
    declared (``tb_*``)."""
    dynamic: ClassVar[tuple[str, ...]] = ()
    """Prefixes of family names that are known only at run time."""
    wants_cluster: ClassVar[bool] = False
    """Whether the collector wants ``Context.cluster``, for which it need not import ray."""
    Options: ClassVar[type[Options]] = Options
    pause_seconds: float = 0.0
    """Seconds in which there will be nothing to see, set by ``collect`` for this once: the next run
    may come later than ``interval`` says, and the last values hold until then."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.log = logging.getLogger(f"ray_sentinel.collectors.{self.name}")

    @abc.abstractmethod
    def collect(self) -> Iterable[Sample | Family | Event]:
        """One collection. A Family may be yielded whole where its metric is made at run time.

        ``self.context`` is renewed before each call. Raise NoData or Skip as they mean.
        """

    def close(self) -> None:  # noqa: B027
        """Called once before the process ends, if it ends in peace."""


class Exporter(abc.ABC):
    """Hands metrics on. Runs in the agent; must return quickly and own its threads."""

    name: ClassVar[str]
    Options: ClassVar[type[Options]] = Options

    def __init__(self, host: str, address: str, options: Any) -> None:
        self.host, self.address, self.options = host, address, options

    @abc.abstractmethod
    def start(self) -> None:
        """Begin to serve or to send. Raises SentinelError with a remedy if it cannot."""

    @abc.abstractmethod
    def publish(self, families: Iterable[Family]) -> None:
        """Take the families of all collectors as they are now, without the ``host`` label."""

    @property
    def url(self) -> str:
        """The address at which it serves, or empty."""
        return ""

    def close(self) -> None:  # noqa: B027
        """Stop serving and sending."""
