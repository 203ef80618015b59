"""The state of one run's scalars: the newest value of each tag, and the training's step."""

from __future__ import annotations

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.event_files.events import EventRecord

MAX_TAGS = 2000
"""Most tags of one run; later ones are left out, and the answer says so."""

_OTHER = re.compile(r"[^a-z0-9]+")


def metric_name(tag: str) -> str:
    """The gauge's name for a tag.

    >>> metric_name("perf/step_time_seconds")
    'tb_perf_step_time_seconds'
    """
    return "tb_" + _OTHER.sub("_", tag.lower())


class Latest(msgspec.Struct):
    """A tag's newest value, its step, and the number of its values so far; ``place`` is its
    position among the tags."""

    value: float
    step: int
    points: int = 0
    place: int = 0


class RunState:
    """Processes the events of a run in the order in which they were written."""

    def __init__(self) -> None:
        self.tags: dict[str, Latest] = {}
        self.too_many = False
        self._others: set[str] = set()
        self._most: Latest | None = None

    def add(self, event: EventRecord) -> list[tuple[str, float]]:
        """Record an event. Returns its scalars as (tag, value).

        TensorFlow gives the kind of a tag with its first value: a tag that is not a scalar stays
        so, even if a later value is a single number.
        """
        self._others.update(event.others)
        taken = []
        for scalar in event.scalars:
            if scalar.tag in self._others:
                continue
            latest = self.tags.get(scalar.tag)
            if latest is None:
                if len(self.tags) >= MAX_TAGS:
                    self.too_many = True
                    continue
                latest = self.tags[scalar.tag] = Latest(
                    scalar.value, event.step, place=len(self.tags)
                )
            latest.value, latest.step = scalar.value, event.step
            latest.points += 1
            most = self._most
            if most is None or (latest.points, -latest.place) > (most.points, -most.place):
                self._most = latest
            taken.append((scalar.tag, scalar.value))
        return taken

    @property
    def step(self) -> int | None:
        """The training's step: that of the tag that is written most often, the first among equals.

        Other tags count differently: evaluations by epoch, Megatron's "vs samples" by samples.
        """
        return self._most.step if self._most is not None else None
