"""The thin Ray shell: agent, coordinator, deployment.

Importing this package makes what was shipped with it importable, so that its modules may import
their dependencies as usual also on a node where nothing is installed.

Ray puts what it ships before everything installed. A compiled dependency must not win there: the
node may have another architecture and its own copy. So ``deployment.cluster`` packs them into a
folder ``ray_sentinel_vendor`` that nothing finds by itself, and this appends it to the end of the
path.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

VENDOR = "ray_sentinel_vendor"
DEPENDENCIES = ("msgspec", "pynvml", "re2", "tomli")
"""Modules to ship: small, and not among Ray's own dependencies."""


def add_shipped_dependencies() -> None:
    """Append the shipped folder to ``sys.path`` if one of the dependencies is missing here.

    Children of this process find it through ``PYTHONPATH``.
    """
    if all(importlib.util.find_spec(name) is not None for name in ("msgspec", "re2")):
        return
    for entry in list(sys.path):
        folder = Path(entry) / VENDOR
        if folder.is_dir():
            sys.path.append(str(folder))
            inherited = os.environ.get("PYTHONPATH", "")
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (inherited, str(folder))))
            importlib.invalidate_caches()
            return


add_shipped_dependencies()
