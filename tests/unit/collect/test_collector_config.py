"""A collector's table of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from ray_sentinel.collect.runner_context import collector_config
from ray_sentinel.errors import ConfigError


def test_our_keys_and_the_collectors_own() -> None:
    config = collector_config("host", {"host": {"interval": "5", "deadline": 2, "mounts": ["/a"]}})
    assert (config.interval, config.deadline, config.enabled) == (5.0, 2.0, True)
    assert config.options == {"mounts": ["/a"]}


def test_no_table_is_fine() -> None:
    assert collector_config("host", {}).enabled


@pytest.mark.parametrize("table", [{"interval": "often"}, {"interval": 0}, {"enabled": "perhaps"}])
def test_a_bad_value_names_the_table_and_the_key(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"\[collectors\.host\].*{next(iter(table))}"):
        collector_config("host", {"host": table})
