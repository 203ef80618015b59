"""Parses what a script plugin prints: Prometheus text, and the state in its last line.

Each line is parsed by itself, so that garbage costs only the lines that it is in, and can be named.
Histograms and summaries pass as the plain series that they consist of.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from ray_sentinel.model.metrics import Family, Metric, MetricKind, Sample

STATE_MARK = "# STATE"
MAX_STATE = 16 << 10
"""Most characters of the state, which is handed back in an environment variable; the rest is cut
off."""
MAX_PROBLEMS = 100
"""Most bad lines that are reported: a program may print megabytes of garbage."""
_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


class ScriptOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one run of a script."""

    families: tuple[Family, ...] = ()
    state: str | None = None
    """The text of its ``# STATE`` line; None if there is none."""
    nothing_new: bool = False
    """Whether it printed a STATE line and nothing else: it is alive, and its last values stay
    valid."""
    problems: tuple[str, ...] = ()


def parse(text: str) -> ScriptOutput:
    """Parse a script's stdout. Never raises: ``problems`` lists what cannot be parsed, by line."""
    lines = text.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    state = None
    if lines and (last := lines[-1].strip()).startswith(STATE_MARK):
        state = last.removeprefix(STATE_MARK).strip()[:MAX_STATE]
        lines.pop()
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        reader.read(number, line.strip())
    alone = state is not None and not any(line.strip() for line in lines)
    return ScriptOutput(
        families=tuple(reader.families()),
        state=state,
        nothing_new=alone,
        problems=tuple(reader.problems),
    )


class _Reader:
    """Collects kinds, helps and samples line by line."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._kinds: dict[str, str] = {}
        self._helps: dict[str, str] = {}
        self._samples: dict[str, list[Sample]] = {}

    def read(self, number: int, line: str) -> None:
        if not line:
            return
        if line.startswith("#"):
            self._comment(line)
            return
        try:
            for family in text_string_to_metric_families(line):
                for sample in family.samples:
                    if sample.timestamp is not None:
                        # One stale timestamp would fail the whole scrape of this node.
                        self._problem(f"line {number}: the timestamp is ignored")
                    self._add(sample.name, dict(sample.labels), float(sample.value))
        except (ValueError, OverflowError, IndexError, KeyError, TypeError, AttributeError):
            self._problem(f"line {number}: not in the exposition format: {line[:120]!r}")

    def _problem(self, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)

    def families(self) -> Iterator[Family]:
        for name, samples in self._samples.items():
            kind, help_text = self._meaning(name)
            yield Family(Metric(name, kind, help_text), tuple(samples))

    def _comment(self, line: str) -> None:
        parts = line.split(None, 3)
        if len(parts) >= 3 and parts[1] in ("TYPE", "HELP"):
            rest = parts[3] if len(parts) > 3 else ""
            if parts[1] == "TYPE":
                self._kinds.setdefault(parts[2], rest.strip().lower())
            else:
                self._helps.setdefault(parts[2], rest.replace("\\n", "\n").replace("\\\\", "\\"))

    def _add(self, name: str, labels: dict[str, str], value: float) -> None:
        sample = Sample(name, tuple(labels.items()), value)
        self._samples.setdefault(name, []).append(sample)

    def _meaning(self, name: str) -> tuple[MetricKind, str]:
        kinds: dict[str, MetricKind] = {"gauge": "gauge", "counter": "counter", "info": "info"}
        if name in self._kinds or name in self._helps:
            return kinds.get(self._kinds.get(name, ""), "untyped"), self._helps.get(name, "")
        for suffix in _HISTOGRAM_PARTS:
            base = name.removesuffix(suffix)
            if base != name and self._kinds.get(base) in ("histogram", "summary"):
                return "untyped", self._helps.get(base, "")
        # OpenMetrics names a counter's family without the suffix of its samples.
        base = name.removesuffix("_total")
        if base != name and self._kinds.get(base) == "counter":
            return "counter", self._helps.get(base, "")
        return "untyped", ""
