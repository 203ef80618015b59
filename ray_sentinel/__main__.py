"""``python -m ray_sentinel`` is ``ray-sentinel``, also where the script is not on PATH."""

import sys

from ray_sentinel.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
