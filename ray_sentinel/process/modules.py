"""Command lines that run a module of an installed package."""

from __future__ import annotations

import os
import sys

_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def python_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module as ``python -m`` does, finding modules where we find them.

    ``-m`` looks into the current folder first, which may be ``/tmp`` or anybody's: a ``msgspec.py``
    that lies there would be run.
    """
    path = [entry for entry in (*_without_script_first(), _PACKAGE_ROOT) if os.path.isabs(entry)]
    code = (
        f"import sys; sys.path[:] = {list(dict.fromkeys(path))!r}; import runpy; "
        f"runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", code, *arguments]


def _without_script_first() -> list[str]:
    """``sys.path`` with the folder of the script that we are called from at its end: what lies
    beside a training's script (a ``secrets.py``, a ``queue.py``) is not taken for Python's own."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if not script or not sys.path or sys.path[0] != os.path.dirname(os.path.abspath(script)):
        return sys.path
    return [*sys.path[1:], sys.path[0]]
