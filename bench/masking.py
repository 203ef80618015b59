"""What masking secrets costs: microseconds per KB of log, and for one line.

python bench/masking.py [FILE ...]
"""

from __future__ import annotations

import sys
import timeit
from pathlib import Path

from ray_sentinel.masking import mask

LOGS = Path(__file__).parents[1] / "tests/fixtures/logs"
LINES = (
    "2026-01-02 03:04:05 step 1200 loss 2.1345 lr 3e-4 8012 samples/s",
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "wandb: api_key=0123456789abcdef0123456789abcdef01234567 of user bob",
)


def seconds(text: str, times: int) -> float:
    """The least of some rounds."""
    return min(timeit.repeat(lambda: mask(text), "gc.enable()", number=1, repeat=times))


def main() -> None:
    """Print the table."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(LOGS.glob("*.toml"))
    text = "".join(path.read_text(errors="replace") for path in paths)
    took = seconds(text, 5)
    print(f"{len(text) / 1024:.0f} KB of logs: {took * 1e6 / (len(text) / 1024):.0f} us per KB")
    for line in LINES:
        print(f"{seconds(line, 2000) * 1e6:6.1f} us  {line}")


if __name__ == "__main__":
    main()
