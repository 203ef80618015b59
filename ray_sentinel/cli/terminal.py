"""The console that commands print on: rich's, but for what it does when its reader has gone."""

from __future__ import annotations

from rich import console


class Console(console.Console):
    """Leaves a closed pipe to ``main``: rich's own would end with 1, which is "something found"."""

    def on_broken_pipe(self) -> None:
        """Raises the BrokenPipeError that is being handled."""
        self.quiet = True
        raise  # noqa: PLE0704
