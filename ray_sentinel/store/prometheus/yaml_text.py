"""Writes YAML by PyYAML, which is loaded at its first use."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ray_sentinel import regex as re

_NUMBER = re.compile(r"(?i)[-+.]*(?:0[box][0-9a-f_]*|[0-9][-+0-9_.:]*(?:e[-+]?[0-9]*)?)")
"""Texts that may be numbers in YAML 1.2, as Go reads it, but are strings in PyYAML's 1.1, such as
1e3 and 0o17."""


def yaml_text(data: Any) -> str:
    """Plain values as a YAML document: keys in their order, long strings on one line.

    >>> print(yaml_text({"job": "a: b", "release": "1e3", "seconds": 5}), end="")
    job: 'a: b'
    release: "1e3"
    seconds: 5
    """
    import yaml

    return str(yaml.dump(data, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=10**6))


@lru_cache(maxsize=1)
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def string(dumper: Any, text: str) -> Any:
        style = '"' if _NUMBER.fullmatch(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, string)
    return Dumper
