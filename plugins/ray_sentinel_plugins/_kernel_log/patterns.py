"""What single lines of the kernel log mean: a table, tried from top to bottom.

Named groups become the event's attributes. The wordings are those of the drivers' and the kernel's
sources, old and new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ray_sentinel import regex as re
from ray_sentinel_plugins._pci import sysfs_address

Severity = Literal["info", "warning", "error", "critical"]

PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
WARNING = 4
"""Syslog level up to which a driver's line is a complaint."""

# Xids after which a GPU or its memory cannot be trusted without a reset or a look at the hardware.
CRITICAL_XIDS = frozenset({46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 151, 155, 158})
# Consequences of something else, or of a recovery that went well.
MILD_XIDS = frozenset({43, 45, 63, 92, 94})


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    kind: str
    """Kind of the event."""
    needs: str
    """A text that the line must contain, so that most rows of the table cost nothing."""
    regex: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    """Pattern of lines that match but mean something else; None if there are none."""
    counted: str = ""
    """The label ``kind`` of ``hw_dmesg_errors_total``; empty if the event is not counted."""
    severity: Severity = "error"
    level: int | None = None
    """Highest syslog level of lines that count, if the level is known; None for all."""


class KernelFact(msgspec.Struct, frozen=True, kw_only=True):
    """What a line says."""

    kind: str
    counted: str
    severity: Severity
    attributes: dict[str, str]


def row(
    kind: str,
    needs: str,
    *regex: str,
    unless: str = "",
    counted: str = "",
    severity: Severity = "error",
    level: int | None = None,
) -> Pattern:
    """A row; the parts of the regular expression are put together."""
    return Pattern(
        kind=kind,
        needs=needs,
        regex=re.compile("".join(regex)),
        unless=re.compile(unless) if unless else None,
        counted=counted,
        severity=severity,
        level=level,
    )


def match(table: Sequence[Pattern], text: str, level: int | None) -> KernelFact | None:
    """What a line says by the table, or None."""
    for pattern in table:
        if pattern.needs not in text:
            continue
        if pattern.level is not None and level is not None and level > pattern.level:
            continue
        if pattern.unless is not None and pattern.unless.search(text):
            continue
        if found := pattern.regex.search(text):
            # The driver writes <unknown> where no process is to blame.
            attributes = {
                key: value
                for key, value in found.groupdict().items()
                if value and not value.startswith("<")
            }
            return KernelFact(
                kind=pattern.kind,
                counted=pattern.counted,
                severity=_severity(pattern, attributes),
                attributes=attributes,
            )
    return None


def _severity(pattern: Pattern, attributes: dict[str, str]) -> Severity:
    number = int(attributes.get("xid", -1))
    if number in CRITICAL_XIDS:
        return "critical"
    return "warning" if number in MILD_XIDS else pattern.severity


def normal_pci(address: str) -> str:
    """A PCI address as sysfs writes it, without the function.

    >>> normal_pci("00000000:3B:00.0"), normal_pci("0000:cb:00")
    ('0000:3b:00', '0000:cb:00')
    """
    return sysfs_address(address).split(".", 1)[0]
