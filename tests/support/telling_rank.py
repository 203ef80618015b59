"""A rank that tells secrets in all the ways that a job has, and dies of an exception in step 40.

python telling_rank.py RANK --hf-token X "--password=a b"
"""

from __future__ import annotations

import os
import sys
import time

import ray_sentinel

sentinel = ray_sentinel.attach()
for step in range(1, 100_000):
    time.sleep(0.05)
    sentinel.step(step)
    if step == 40 and sys.argv[1] == "1":
        sys.stderr.write(f"export AWS_SECRET_ACCESS_KEY={os.environ['TOLD_IN_OUTPUT']}\n")
        sys.stderr.write(os.environ["TOLD_KEY"] + "\n")
        sys.stderr.flush()
        raise ConnectionError(
            f"postgres://bob:{os.environ['TOLD_IN_URL']}@db/x refused api_key="
            f"{os.environ['TOLD_IN_CALL']!r}: {{'password': {os.environ['TOLD_IN_DICT']!r}}}"
        )
