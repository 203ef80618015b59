"""How much memory a child that reads what may be hostile may take: it limits itself."""

from __future__ import annotations

import resource


def address_space() -> int:
    """Bytes of address space that this process takes now (first field of proc_pid_statm(5))."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def limit_address_space(most: int) -> int:
    """Let this process take ``most`` bytes of address space, or what it may have at all where that
    is less. Returns the limit. What goes beyond it raises MemoryError."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    return limit
