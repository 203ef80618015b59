"""The classes of Xids as regular expressions of the label ``xid``."""

from __future__ import annotations

from ray_sentinel.evidence import xids

CRITICAL = "|".join(map(str, sorted(xids.RESET + xids.SERVICE)))
INFO = "|".join(map(str, sorted(xids.APPLICATION + xids.HANDLED)))
