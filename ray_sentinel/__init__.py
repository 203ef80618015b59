"""ray_sentinel names the rank that hangs a distributed training job on Ray, and says why."""

from __future__ import annotations

__version__ = "0.1.0"
