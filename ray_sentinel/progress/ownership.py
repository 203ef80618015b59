"""Which of several agents on one machine watches a process.

Agents that share a machine and a PID namespace see the same processes. A process that descends
from a raylet belongs to that Ray node's agent, whether or not that agent is up; all others belong
to one agent that all of them agree on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def owns(
    ancestors: Iterable[int],
    own_raylet: int | None,
    all_raylets: Collection[int],
    is_default_owner: bool,
) -> bool:
    """Whether the agent of ``own_raylet`` watches a process with these ancestors (pids).

    ``all_raylets`` are those of the agents that share the machine and namespace; the nearest
    raylet above a process decides.
    """
    for pid in ancestors:
        if pid == own_raylet:
            return True
        if pid in all_raylets:
            return False
    return is_default_owner


def is_default_owner(own_raylet: int | None, all_raylets: Collection[int]) -> bool:
    """Whether this agent takes what belongs to no raylet: the one of the lowest raylet pid does."""
    return own_raylet is None or own_raylet == min((own_raylet, *all_raylets))
