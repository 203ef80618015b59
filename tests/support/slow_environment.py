"""A plugin of Ray's runtime environments whose child process works until a file is there."""

from __future__ import annotations

import logging
from typing import Any

from ray._private.runtime_env.plugin import RuntimeEnvPlugin
from ray._private.runtime_env.utils import check_output_cmd


class SlowEnvironment(RuntimeEnvPlugin):  # type: ignore[misc]
    """``runtime_env={"slow_environment": PATH}``."""

    name = "slow_environment"

    async def create(
        self, uri: str | None, runtime_env: Any, context: Any, logger: logging.Logger
    ) -> float:
        """Wait for the file."""
        logger.info("Fetching packages with token=hf_abcdefghijklmnopqrstuvwx")
        wait = f"while [ ! -e {runtime_env[self.name]} ]; do sleep 0.1; done"
        await check_output_cmd(["sh", "-c", wait], logger=logger)
        return 0
