"""Series keys as text: ``name{label="value",...}``, as in the Prometheus exposition format."""

from __future__ import annotations

from ray_sentinel import regex as re

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)")


def parse_key(key: str) -> tuple[str, dict[str, str]]:
    """Name and labels of a key. Raises ValueError if it is not a key.

    >>> parse_key('hw_gpu_power_watts{gpu="0"}')
    ('hw_gpu_power_watts', {'gpu': '0'})
    """
    name, brace, rest = key.partition("{")
    if not brace:
        return name.strip(), {}
    if not rest.rstrip().endswith("}"):
        raise ValueError(f"not a series: {key!r}")
    inner = rest.rstrip()[:-1]
    labels, at = {}, 0
    while at < len(inner.rstrip()):
        found = _LABEL.match(inner, at)
        if found is None:
            raise ValueError(f"not a series: {key!r}")
        labels[found[1]] = _ESCAPE.sub(lambda m: {"n": "\n"}.get(m[1], m[1]), found[2])
        at = found.end()
    return name.strip(), labels
