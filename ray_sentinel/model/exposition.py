"""Metric families as text: the Prometheus text format 0.0.4 and OpenMetrics 1.0.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://github.com/prometheus/OpenMetrics (specification 1.0).

Most of what is served was served before with another value, so everything of a line but the value
is kept from one rendering to the next, and a family that did not change at all is not rendered
again. Samples with a timestamp are history: one that is too old fails the whole scrape, so they are
rendered apart, for a scrape job of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ray_sentinel import regex as re
from ray_sentinel.model.metrics import Family, Labels, Metric, Sample

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_NOT_IN_LABEL = re.compile(r"[^a-zA-Z0-9_]")

_TEXT_KINDS = {"gauge": "gauge", "counter": "counter", "info": "gauge", "untyped": "untyped"}
_OPENMETRICS_KINDS = {"gauge": "gauge", "counter": "counter", "info": "info", "untyped": "unknown"}
_OPENMETRICS_SUFFIX = {"counter": "_total", "info": "_info"}

_DIGITS = frozenset("0123456789")


def valid_name(name: str) -> bool:
    """Whether ``name`` is a valid metric name."""
    return _METRIC_NAME.match(name) is not None


def label_name(name: str) -> str:
    """``name`` as a label's name; ``host`` is reserved, so another's becomes ``exported_host``."""
    if name == "host":
        return "exported_host"
    if _LABEL_NAME.match(name) and not name.startswith("__"):
        return name
    cleaned = _NOT_IN_LABEL.sub("_", name).lstrip("_") or "label"
    return cleaned if not cleaned[0].isdigit() else "_" + cleaned


def clean(text: str) -> str:
    """``text`` with characters that UTF-8 cannot represent (lone surrogates) written as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def escape(value: str) -> str:
    r"""A label value as it is written between quotes: backslash, quote and newline escaped.

    >>> escape('a"b')
    'a\\"b'
    """
    value = clean(value)
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


def series_text(name: str, labels: Iterable[tuple[str, str]]) -> str:
    """A series, or a selector of it, in one line; labels in the order given.

    >>> series_text("up", [("host", "n1"), ("job", "a")])
    'up{host="n1",job="a"}'
    >>> series_text("up", ())
    'up'
    """
    inner = ",".join(f'{key}="{escape(value)}"' for key, value in labels)
    return f"{name}{{{inner}}}" if inner else name


def number(value: float) -> str:
    """A value in the notation of both formats.

    >>> number(float("inf"))
    '+Inf'
    """
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


class _Block:
    """One family's lines and what they were made from."""

    def __init__(self) -> None:
        self.made_from: tuple[Family, ...] = ()
        self.labels: list[Labels] = []
        self.prefixes: list[str] = []
        """The line of each series up to its value, in the order of ``labels``."""
        self.header = ""
        self.text = ""


class Renderer:
    """Renders families for one host in one format; reuses what has not changed.

    ``history`` selects the samples that have a timestamp; without it they are left out. A sample
    about another host keeps that host's name, whoever reports it. Not thread-safe.
    """

    def __init__(self, host: str, *, openmetrics: bool = False, history: bool = False) -> None:
        self._host = escape(host)
        self._openmetrics = openmetrics
        self._history = history
        self._blocks: dict[str, _Block] = {}

    def render(self, families: Iterable[Family]) -> bytes:
        """The whole exposition. Families of one name are merged; ill-named ones are left out."""
        merged = _by_name(families)
        self._blocks = {name: self._blocks.get(name) or _Block() for name in merged}
        taken: set[str] = set()
        texts = [self._update(self._blocks[name], merged[name], taken) for name in sorted(merged)]
        if self._openmetrics:
            texts.append("# EOF\n")
        return "".join(texts).encode("utf-8", "backslashreplace")

    def _update(self, block: _Block, families: list[Family], taken: set[str]) -> str:
        header = self._header(families[0].metric, taken)
        same = len(block.made_from) == len(families) and all(
            old is new for old, new in zip(block.made_from, families, strict=True)
        )
        if not same or header != block.header:
            block.header = header
            block.made_from = tuple(families)
            block.text = self._lines(block, families)
        return block.text

    def _lines(self, block: _Block, families: list[Family]) -> str:
        name = families[0].metric.name
        samples = list(_samples(families, self._history))
        if self._history:
            # OpenMetrics requires each series in one piece, with its times in ascending order.
            samples.sort(key=lambda sample: (sample.labels, sample.timestamp or 0.0))
        # The usual case: the same series in the same order, with other values.
        if [sample.labels for sample in samples] != block.labels:
            known = dict(zip(block.labels, block.prefixes, strict=True))
            block.labels = [sample.labels for sample in samples]
            block.prefixes = [
                known.get(labels) or self._prefix(name, labels) for labels in block.labels
            ]
        values = [repr(sample.value) for sample in samples]
        lines = [
            # "nan", "inf", "True" and "np.float64(1.0)" do not end in the way that a plain number
            # does.
            prefix + (text if text[-1] in _DIGITS else number(sample.value))
            for prefix, text, sample in zip(block.prefixes, values, samples, strict=True)
        ]
        if self._history:
            stamps = [self._stamp(sample) for sample in samples]
            lines = [line + stamp for line, stamp in zip(lines, stamps, strict=True)]
        return block.header + "\n".join(lines) + "\n" if lines else ""

    def _stamp(self, sample: Sample) -> str:
        if sample.timestamp is None:
            return ""
        if self._openmetrics:
            return f" {sample.timestamp:.3f}"
        return f" {round(sample.timestamp * 1000)}"

    def _prefix(self, name: str, labels: Labels) -> str:
        pairs = {"host": self._host}
        for key, value in labels:
            if self._history and key == "host":
                pairs["host"] = escape(value)
            else:
                pairs.setdefault(label_name(key), escape(value))
        return name + "{" + ",".join(f'{key}="{value}"' for key, value in pairs.items()) + "} "

    def _header(self, metric: Metric, taken: set[str]) -> str:
        name, kind = metric.name, _TEXT_KINDS[metric.kind]
        help_text = clean(metric.help).replace("\\", "\\\\").replace("\n", "\\n")
        if self._openmetrics:
            name, kind = _openmetrics_family(metric, taken)
            help_text = help_text.replace('"', '\\"')
        taken.add(name)
        return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"


def _openmetrics_family(metric: Metric, taken: set[str]) -> tuple[str, str]:
    """Name and type of the family: a counter's is named without ``_total``, an info's without
    ``_info``. One that has no such suffix, or whose name would be another's, is "unknown"."""
    suffix = _OPENMETRICS_SUFFIX.get(metric.kind, "")
    name = metric.name.removesuffix(suffix) if suffix else metric.name
    if (suffix and name == metric.name) or name in taken:
        return metric.name, "unknown"
    return name, _OPENMETRICS_KINDS[metric.kind]


def _by_name(families: Iterable[Family]) -> dict[str, list[Family]]:
    merged: dict[str, list[Family]] = {}
    for family in families:
        if family.samples and valid_name(family.metric.name):
            merged.setdefault(family.metric.name, []).append(family)
    return merged


def _samples(families: list[Family], history: bool) -> Iterator[Sample]:
    if len(families) == 1 or history:
        for family in families:
            for sample in family.samples:
                if (sample.timestamp is not None) is history:
                    yield sample
        return
    seen: set[Labels] = set()
    for sample in (sample for family in families for sample in family.samples):
        if sample.timestamp is None and sample.labels not in seen:
            seen.add(sample.labels)
            yield sample
