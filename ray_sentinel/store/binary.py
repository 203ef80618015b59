"""Where the prometheus and promtool programs are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ray_sentinel.errors import MissingPartError

CACHE = Path("~/.cache/ray_sentinel/bin")


def find_program(name: str = "prometheus", option: str = "") -> str:
    """The path of a program of Prometheus's: the option, PATH, then our cache.

    ``option`` may name the program itself or the folder that it is in. Raises MissingPartError
    with the command that installs it.
    """
    if option:
        given = Path(option).expanduser()
        given = given / name if given.is_dir() else given.with_name(name)
        if os.access(given, os.X_OK) and given.is_file():
            return str(given)
        raise MissingPartError(f"{given} is not a program that can be run")
    if found := shutil.which(name):
        return found
    cached = CACHE.expanduser() / name
    if os.access(cached, os.X_OK):
        return str(cached)
    raise MissingPartError(
        f"the program {name} is not installed: `apt-get install prometheus`, or unpack a release "
        f"of Prometheus into {CACHE}, or name it with --prometheus PATH"
    )
