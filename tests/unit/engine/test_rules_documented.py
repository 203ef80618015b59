"""Every rule has its section in docs/rules.md or docs/telemetry-rules.md, with its thresholds."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ray_sentinel.engine.rule import known_rules

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_rule_and_threshold_is_documented() -> None:
    text = "\n".join((DOCS / name).read_text() for name in ("rules.md", "telemetry-rules.md"))
    for name, rule in known_rules().items():
        assert f"\n## {name}\n" in text, name
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0].split("\n# ")[0]
        for field in msgspec.structs.fields(rule.Thresholds):
            assert field.name == "enabled" or f"`{field.name}`" in section, (name, field.name)
