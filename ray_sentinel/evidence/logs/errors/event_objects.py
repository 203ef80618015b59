"""Which machine an event is about, as clusters and clouds write of those that say nothing.

Kubernetes gives an event's object as ``node/NAME`` or ``pod/NAME``, loggers of its controllers as a
field; clouds name the instance by its path or its id; Ray by the node's address.
"""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.lines import ScannedLine

_NAME = r"[A-Za-z0-9][\w.-]{0,252}\w"
_OBJECTS: tuple[re.Pattern[str], ...] = (
    re.compile(rf"\bnode/(?P<host>{_NAME})"),
    re.compile(rf'"?\b[Nn]ode(?:Name)?"?\s?[:=]\s?(?:\{{"name"\s?[:=]\s?)?"(?P<host>{_NAME})"'),
    re.compile(rf'"Resources"\s?:\s?\[\s?"(?P<host>{_NAME})"'),
    re.compile(rf"\b(?:on|of) node (?P<host>{_NAME})"),
    re.compile(rf"\binstances/(?P<host>{_NAME})"),
    re.compile(r"\b(?P<host>i-[0-9a-f]{8,17})\b"),
    re.compile(r"\b(?:[Nn]ode|NODE)\b[^\n]{0,80}?\b(?P<ip>\d{1,3}(?:\.\d{1,3}){3})\b"),
    re.compile(
        r"\b(?:[Nn]ode|[Ii]nstance|VM|vm|[Hh]ost|[Mm]achine) "
        r"(?P<host>[a-z][\w.-]{0,200}\d[\w-]{0,40})\b"
    ),
    re.compile(rf"\bpod/(?P<host>{_NAME})"),
)
"""How events name their machine, the surest first. A pod stands for its machine where no other name
is given."""
_DESCRIBED = re.compile(rf"Node:\s{{1,40}}(?P<host>{_NAME})(?:/(?P<ip>[0-9.]+))?\s*$")
"""The line of ``kubectl describe pod``."""


def machine_of(text: str) -> dict[str, str]:
    """The machine that the event ``text`` is about, as ``host`` or ``ip``; empty if it names none.

    >>> machine_of("Warning SpotInterruption node/ip-10-0-3-7.ec2.internal Spot ITN received.")
    {'host': 'ip-10-0-3-7.ec2.internal'}
    """
    for pattern in _OBJECTS:
        if (match := pattern.search(text)) is not None:
            return {key: value for key, value in match.groupdict().items() if value}
    return {}


def described_machine(before: Sequence[ScannedLine]) -> dict[str, str]:
    """The node of the pod that ``kubectl describe`` shows, from the lines before one about it, the
    last one first."""
    for line in before:
        if (match := _DESCRIBED.match(line.text)) is not None:
            return {key: value for key, value in match.groupdict().items() if value}
    return {}
