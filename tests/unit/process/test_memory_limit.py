"""A process limits the memory that it may take itself."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
from ray_sentinel.process.memory_limit import address_space, limit_address_space

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
print(limit_address_space(8 << 30) >> 20)
print(limit_address_space(address_space() + (64 << 20)) - address_space() <= 64 << 20)
try:
    bytearray(128 << 20)
except MemoryError:
    print("refused")
"""


def test_it_takes_no_more_than_it_may_have_at_all_and_more_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["4096", "True", "refused"]
