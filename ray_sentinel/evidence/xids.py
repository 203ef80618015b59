"""Xids classified by the immediate action that NVIDIA recommends.

https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, column "Immediate Action". An
Xid in no class is a warning, because newer drivers bring new numbers. Rules, alerts and the
diagnosis use this table.
"""

from __future__ import annotations

from typing import Literal

RESET = (46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158)
"""Reset the GPU before anything runs on it again."""
SERVICE = (54, 79, 151, 167, 169)
"""Restart the machine, or look at it: power, the PCIe link, the GPU's controller."""
LINK = (144, 145, 146, 147, 148, 149, 150, 154, 155)
"""Of NVLink 5, and that the driver asks for a recovery: what is to be done stands in the message.
Jobs that stop after one stop because of it."""
APPLICATION = (13, 31, 43, 45, 68, 69, 137)
"""The program's own faults, and what is left of a program that was ended; the GPU is well."""
HANDLED = (63, 106, 107, 121, 162, 163)
"""Dealt with by the driver: a row that will be remapped, a corrected link, a test."""


def severity(number: int) -> Literal["critical", "warning", "info"]:
    """The severity of an Xid for the alert rules, the engine and the diagnosis."""
    if number in RESET + SERVICE:
        return "critical"
    return "info" if number in APPLICATION + HANDLED else "warning"
