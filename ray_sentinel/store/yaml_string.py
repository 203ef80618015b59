"""Strings in the YAML that we write."""

from __future__ import annotations

import json


def yaml_string(value: str) -> str:
    """``value`` in quotes: JSON's strings are YAML's.

    >>> print(yaml_string('say "a: b"'))
    "say \\"a: b\\""
    """
    return json.dumps(value, ensure_ascii=False)
