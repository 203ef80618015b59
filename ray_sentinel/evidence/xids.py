"""Xids classified by the immediate action that NVIDIA recommends.

https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, column "Immediate Action". An
Xid in no class is a warning, because newer drivers bring new numbers. Rules, alerts and the
diagnosis use this table.
"""

from __future__ import annotations

from typing import Literal

RESET = (46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158)
"""Xids after which the GPU must be reset before anything runs on it again."""
SERVICE = (54, 79, 151, 167, 169)
"""Xids after which the machine must be restarted or looked at: power, the PCIe link, the GPU's
controller."""
LINK = (144, 145, 146, 147, 148, 149, 150, 154, 155)
"""Xids of NVLink 5, and one that says that the driver asks for a recovery: the message says what is
to be done. Jobs that stop after one of these stop because of it."""
APPLICATION = (13, 31, 43, 45, 68, 69, 137)
"""Xids for the program's own faults, and for what is left of a program that was ended; the GPU is
well."""
HANDLED = (63, 106, 107, 121, 162, 163)
"""Xids that the driver has dealt with: a row that will be remapped, a corrected link, a test."""


def severity(number: int) -> Literal["critical", "warning", "info"]:
    """The severity of an Xid for the alert rules, the engine and the diagnosis."""
    if number in RESET + SERVICE:
        return "critical"
    return "info" if number in APPLICATION + HANDLED else "warning"
