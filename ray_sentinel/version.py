"""The version of this package, where every module may read it without importing the package's
own exports."""

from __future__ import annotations

__version__ = "0.1.0"
