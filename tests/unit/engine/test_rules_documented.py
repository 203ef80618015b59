"""Every rule has its section in docs/rules.md, and every threshold is named there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ray_sentinel.engine.rule import known_rules

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "rules.md"


def test_every_rule_and_threshold_is_documented() -> None:
    text = DOCUMENT.read_text()
    for name, rule in known_rules().items():
        assert f"\n## {name}\n" in text, name
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0].split("\n# ")[0]
        for field in msgspec.structs.fields(rule.Thresholds):
            assert field.name == "enabled" or f"`{field.name}`" in section, (name, field.name)
