# ruff: noqa: E501 - log lines are as long as they are
"""Lines in the wrappings of containers and of structured loggers."""

from __future__ import annotations

import json

from tests.support.log_cases.parts import ANYBODY, Case, bad_batch, minutes

_AT = "2025-03-01T10:12:01.123456789Z "
FAILURE = """\
Traceback (most recent call last):
  File "/app/train.py", line 88, in <module>
    main()
ValueError: boom
"""


def docker(text: str) -> str:
    """As Docker's json-file driver writes it."""
    return "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": f"2025-05-01T10:00:{i:02d}.5Z"})
        + "\n"
        for i, line in enumerate(text.splitlines())
    )


def structured(message: str, severity: str = "INFO") -> str:
    """As Google Cloud's logging writes it."""
    entry = {"severity": severity, "message": message, "timestamp": "2025-05-01T10:00:00.5Z"}
    return json.dumps(entry) + "\n"


CASES: dict[str, Case] = {
    "docker json": Case(
        "python-exception",
        ANYBODY,
        docker("step: 1 loss: 2.0 time: 1s\nstep: 2 loss: 2.0 time: 1s\n" + FAILURE),
    ),
    "docker json oom": Case(
        "oom-gpu",
        ANYBODY,
        docker(
            "step: 1 loss: 2.0 time: 1s\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB. GPU 3 has a total capacity of 79 GiB\n"
        ),
    ),
    "gcp json multi-line": Case(
        "python-exception",
        ANYBODY,
        structured("step: 1 loss: 2.0 time: 1s")
        + structured("step: 2 loss: 2.0 time: 1s")
        + structured(FAILURE, "ERROR"),
    ),
    "ray json structured": Case(
        "python-exception",
        ANYBODY,
        "".join(
            json.dumps(
                {
                    "asctime": f"2025-05-01 10:00:0{i},100",
                    "levelname": "INFO",
                    "message": f"step: {i} loss: 2.0 time: 1s",
                    "filename": "t.py",
                    "lineno": 3,
                    "process": 77,
                    "job_id": "01",
                    "worker_id": "ab",
                    "node_id": "cd",
                    "actor_id": "ef",
                    "timestamp_ns": 1746093600000000000 + i * 10**9,
                }
            )
            + "\n"
            for i in range(5)
        )
        + json.dumps(
            {
                "asctime": "2025-05-01 10:00:09,100",
                "levelname": "ERROR",
                "message": "failed",
                "exc_text": FAILURE,
                "process": 77,
                "timestamp_ns": 1746093609000000000,
            }
        )
        + "\n",
    ),
    "journal cri": Case(
        "oom-gpu",
        {"rank": 3},
        "2025-05-01T10:00:00.5Z stderr F step: 1 loss: 2.0 time: 1s\n2025-05-01T10:00:01.5Z stderr F [rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB. GPU 3 has a total capacity of 79 GiB\n",
    ),
    "kubectl prefix tb": Case(
        "python-exception",
        ANYBODY,
        "".join(
            f"[pod/train-worker-3/pytorch] {line}\n"
            for line in ("step: 1 loss: 2.0 time: 1s\n" + FAILURE).splitlines()
        ),
    ),
    "stern prefix tb": Case(
        "python-exception",
        ANYBODY,
        "".join(
            f"train-worker-3 pytorch {line}\n"
            for line in ("step: 1 loss: 2.0 time: 1s\n" + FAILURE).splitlines()
        ),
    ),
    "ts prefix tb": Case(
        "python-exception",
        ANYBODY,
        "".join(
            f"2025-05-01T10:00:0{i}.123456789Z {line}\n"
            for i, line in enumerate(("step: 1 loss: 2.0 time: 1s\n" + FAILURE).splitlines())
        ),
    ),
    **{
        f"a container's time, {name}": Case(kind, culprit, minutes(prefix=_AT) + _AT + line + "\n")
        for name, kind, culprit, line in (
            ("segfault", "signal-kill", ANYBODY, "Segmentation fault (core dumped)"),
            ("killed", "signal-kill", ANYBODY, "Killed"),
            ("exception", "python-exception", ANYBODY, "ValueError: bad thing"),
            ("task", "oom-gpu", {"rank": 3}, "3: RuntimeError: CUDA out of memory"),
            ("local rank", "python-exception", {"rank": 3}, "[default3]:ValueError: bad thing"),
            (
                "ray",
                "python-exception",
                {"pid": 103, "ip": "10.0.0.2"},
                "(RayTrainWorker pid=103, ip=10.0.0.2) ValueError: bad thing",
            ),
        )
    },
    "a time by ts": Case(
        "python-exception",
        {"rank": 3},
        minutes() + bad_batch(3, "2025-03-01 10:12:01 "),
    ),
    "a level in JSON": Case(
        "unknown-death",
        ANYBODY,
        structured("step: 1 loss: 2.0 time: 1s")
        + structured("hook installed: dumps snapshot on CUDA out of memory"),
    ),
    "a level in logfmt": Case(
        "unknown-death",
        ANYBODY,
        minutes()
        + 'time=2025-03-01T10:12:00Z level=info msg="hook installed: dumps snapshot on CUDA out of memory"\n',
    ),
    "an error in logfmt": Case(
        "oom-gpu",
        ANYBODY,
        minutes() + 'time=2025-03-01T10:12:00Z level=error msg="CUDA out of memory"\n',
    ),
    "a rank in JSON": Case(
        "python-exception",
        {"rank": 3, "node": "n03"},
        minutes()
        + json.dumps(
            {"severity": "ERROR", "rank": 3, "hostname": "n03", "message": FAILURE, "line": 88}
        )
        + "\n",
    ),
    "logging prefix each": Case(
        "python-exception",
        ANYBODY,
        "".join(
            f"2025-05-01 10:00:0{i},123 - ERROR - __main__ - {line}\n"
            for i, line in enumerate(FAILURE.splitlines())
        ),
    ),
}
