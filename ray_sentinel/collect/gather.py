"""From what a collector yields to families that can be served: checked, cleaned and bounded.

Pure. Nothing that a collector yields is trusted: a value that is not a number, a label that is not
UTF-8 or endless, a name that no parser would accept, the same series twice, a million series.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ray_sentinel.collect.protocol import OutputLimits
from ray_sentinel.model.exposition import clean, label_name, valid_name
from ray_sentinel.model.metrics import Event, Family, Labels, Metric, MetricKind, Sample


class Gathering:
    """What one run has yielded so far.

    ``metrics`` are the declared families by name. ``on_event`` is called with each event at once.
    """

    def __init__(
        self, metrics: Mapping[str, Metric], limits: OutputLimits, on_event: Callable[[Event], None]
    ) -> None:
        self._metrics, self._limits, self._on_event = metrics, limits, on_event
        self._found: dict[str, tuple[Metric, dict[tuple[Labels, float | None], Sample]]] = {}
        self._series = self._samples = self._events = 0
        self.problems: list[str] = []

    def add_all(self, items: Iterable[object]) -> None:
        """Collect all that ``items`` yields, up to the limits; exceptions from ``items`` are passed
        on."""
        for item in items:
            self._add(item)
            if self._full():
                break

    def families(self) -> tuple[Family, ...]:
        """The families that can be served, in the order of their first appearance."""
        return tuple(
            Family(metric, tuple(samples.values())) for metric, samples in self._found.values()
        )

    def problem(self, text: str) -> None:
        """Record what is wrong with the output; each text once, and a limited number of them."""
        text = clean(text)[:500]
        if len(self.problems) < self._limits.problems and text not in self.problems:
            self.problems.append(text)

    def _full(self) -> bool:
        for what, count, limit in (
            ("series", self._series, self._limits.series),
            ("samples", self._samples, self._limits.samples),
        ):
            if count >= limit:
                self.problem(f"yields {limit} {what} or more: the rest is dropped")
                return True
        return False

    def _add(self, item: object) -> None:
        if isinstance(item, Sample):
            metric = self._metrics.get(item.name)
            if metric is None:
                self.problem(
                    f"yields {item.name!r}, which it does not declare: add it to `metrics`"
                )
            else:
                self._add_sample(metric, item)
        elif isinstance(item, Family):
            for sample in item.samples:
                self._add_sample(item.metric, sample)
                if self._full():
                    return
        elif isinstance(item, Event):
            self._add_event(item)
        else:
            self.problem(
                f"yields a {type(item).__name__}: only Sample, Family and Event can be taken"
            )

    def _add_sample(self, metric: Metric, sample: Sample) -> None:
        try:
            value = float(sample.value)
            stamp = None if sample.timestamp is None else float(sample.timestamp)
        except (TypeError, ValueError, OverflowError):
            self.problem(f"{metric.name}: {sample.value!r:.100} is not a number")
            return
        labels = self._labels(metric, sample)
        if labels is None:
            return
        found = self._found.get(metric.name)
        if found is None:
            checked = self._checked(metric)
            if checked is None:
                return
            found = self._found[metric.name] = (checked, {})
        samples = found[1]
        if (labels, stamp) in samples:
            shown = ",".join(f'{key}="{text}"' for key, text in labels)
            self.problem(f"{metric.name}{{{shown}}} is yielded twice: the first is taken")
            return
        samples[labels, stamp] = Sample(metric.name, labels, value, stamp)
        self._samples += 1
        self._series += stamp is None

    def _labels(self, metric: Metric, sample: Sample) -> Labels | None:
        if len(sample.labels) > self._limits.labels:
            self.problem(f"{metric.name}: more than {self._limits.labels} labels")
            return None
        limit = self._limits.label_length
        pairs: dict[str, str] = {}
        for key, value in sample.labels:
            name, text = label_name(str(key)), clean(str(value))
            if name != key:
                self.problem(f"{metric.name}: the label {key!r:.100} is served as {name}")
            if len(text) > limit:
                self.problem(f"{metric.name}: a value of {name} is cut at {limit} characters")
                text = text[: limit - 1] + "…"
            pairs[name] = text
        return tuple(pairs.items())

    def _add_event(self, event: Event) -> None:
        self._events += 1
        if self._events > self._limits.events:
            self.problem(f"yields more than {self._limits.events} events: the rest is dropped")
            return
        try:
            whole = Event(
                time=float(event.time),
                kind=clean(event.kind)[:100],
                message=clean(event.message)[:4000],
                severity=event.severity,
                attributes={
                    clean(str(key))[:100]: clean(str(value))[:500]
                    for key, value in list(event.attributes.items())[:32]
                },
            )
            checked = msgspec.convert(msgspec.to_builtins(whole), Event)
        except (TypeError, ValueError, AttributeError) as error:
            # Includes msgspec's ValidationError: a record is not checked when it is made.
            self.problem(f"yields an event that cannot be read: {error}")
            return
        self._on_event(checked)

    def _checked(self, metric: Metric) -> Metric | None:
        """The metric as it can be sent, or None, with the problem noted."""
        try:
            name, kind = str(metric.name), msgspec.convert(metric.kind, MetricKind)
        except msgspec.ValidationError:
            self.problem(
                f"{metric.name}: {metric.kind!r:.50} is no kind: gauge, counter, info, untyped"
            )
            return None
        if not valid_name(name):
            self.problem(f"{name!r:.100} cannot be the name of a metric")
            return None
        return Metric(name, kind, clean(str(metric.help))[:1000])


def declared(metrics: Iterable[Metric], module: types.ModuleType | None) -> dict[str, Metric]:
    """A collector's families by name: those it declares, and those at the top of its module.

    Metrics in lists, tuples and dicts at the module's top count as well.
    """
    found = {metric.name: metric for metric in metrics}
    for value in list(vars(module).values()) if module is not None else []:
        held: Iterable[object] = (value,)
        if isinstance(value, (list, tuple)):
            held = value
        elif isinstance(value, dict):
            held = value.values()
        for metric in held:
            if isinstance(metric, Metric):
                found.setdefault(metric.name, metric)
    return found
