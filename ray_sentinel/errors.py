"""Errors that people read. Each names what is wrong and the remedy, and has an exit code."""

from __future__ import annotations

from typing import ClassVar


class SentinelError(Exception):
    """Base of all our errors; survives pickling because it keeps plain arguments."""

    exit_code: ClassVar[int] = 1


class UsageError(SentinelError):
    """Wrong usage of a command or a function."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration that cannot be used: names the key, where it was set and what was meant."""


class InputError(UsageError):
    """A file that is not what it should be: names the file and what is still possible."""


class UnreachableError(SentinelError):
    """Something that must answer does not: a Ray cluster, the coordinator, a Prometheus."""

    exit_code = 3


class MissingPartError(SentinelError):
    """A program or package that is not installed: says the command that installs it."""

    exit_code = 3


class InvalidTransitionError(SentinelError):
    """An incident was asked to go where it cannot from its state. It did not change."""

    def __init__(self, key: str, start: str, finish: str, story: tuple[str, ...] = ()) -> None:
        super().__init__(key, start, finish, story)
        self.key, self.start, self.finish, self.story = key, start, finish, story

    def __str__(self) -> str:
        return f"incident {self.key} cannot go from {self.start} to {self.finish}; so far: " + (
            " → ".join(self.story) or "nothing"
        )


def unreached(why: object) -> str:
    """Why an address was not reached, in words and without the number of the error. ``why`` is the
    error, or what it gives as its reason."""
    if isinstance(why, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    if isinstance(why, OSError) and why.strerror:
        return why.strerror
    return str(why) or type(why).__name__
