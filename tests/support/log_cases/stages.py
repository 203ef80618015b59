# ruff: noqa: E501 - log lines are as long as they are
"""What stands behind a bar, what goes on without a word, and what a node lives through."""

from __future__ import annotations

from tests.support.log_cases.parts import ANYBODY, STEPS, Case

_BAR = "Training:  {p:2d}%|####      | {i}/1000 [{m:02d}:{s:02d}<01:00, 13.82it/s]"
_BARS = "\r".join(
    _BAR.format(p=i // 10, i=i, m=i // 840, s=i // 14 % 60) for i in range(10, 310, 10)
)
_DISK = "(raylet) [2025-05-01 10:{m:02d}:30,000 E 900 910] (raylet) file_system_monitor.cc:116: /tmp/ray/session_1 is over 95% full, available space: 10 GB; capacity: 400 GB. Object creation will fail if spilling is required.\n"
_GOOD = "".join(
    f"2025-05-01 10:{i // 10:02d}:{i % 10 * 6:02d},000 INFO train.py:10 step {i} loss {3 - i * 0.01:.3f} time 6.0s\n"
    + (_DISK.format(m=i // 10) if i % 10 == 9 else "")
    for i in range(1, 210)
)

CASES: dict[str, Case] = {
    "killed behind a bar": Case("signal-kill", ANYBODY, _BARS + "Killed\n"),
    "segmentation fault behind a bar": Case(
        "signal-kill", ANYBODY, _BARS + "Segmentation fault (core dumped)\n"
    ),
    "a traceback behind a bar": Case(
        "python-exception",
        ANYBODY,
        _BARS
        + """Traceback (most recent call last):
  File "/app/train.py", line 60, in main
    y = table[idx]
IndexError: index 50304 is out of bounds for dimension 0 with size 50304
""",
    ),
    "a disk that is nearly full through good steps": Case("unknown-death", ANYBODY, _GOOD),
    "a disk that is nearly full until the end of training": Case(
        "completed",
        ANYBODY,
        _GOOD + _DISK.format(m=21) + "2025-05-01 10:22:00,000 INFO Training complete.\n",
    ),
    "input/output error of a fabric": Case(
        "signal-kill",
        {"rank": 3},
        STEPS
        + "[1714557661.123456] [node1:100:0] ib_mlx5_log.c:179  UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n"
        + "[1714557661.133456] [node1:100:0] ucp_worker.c:1855 UCX  ERROR failed to send active message: Input/output error\n"
        + "[1714557662.133456] [node2:100:0] rc_verbs.c:22 UCX  WARN ibv_poll_cq() failed: Input/output error\n"
        + "E0501 10:01:10.100000 1000 torch/distributed/elastic/multiprocessing/api.py:870] failed (exitcode: -11) local_rank: 3 (pid: 1003) of binary: /usr/bin/python3\n",
    ),
    "DEADLINE_EXCEEDED of RegisterTask in one line": Case(
        "rendezvous",
        ANYBODY,
        "2025-05-01 10:05:00.100000: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service_agent.cc:200] Failed to connect: DEADLINE_EXCEEDED: Deadline Exceeded; RPC: /tensorflow.CoordinationService/RegisterTask [type.googleapis.com/tensorflow.DerivedStatus='']\n",
    ),
    "host of the store not found": Case(
        "rendezvous",
        ANYBODY,
        "2025-05-01 10:00:00,000 INFO starting\n[W501 10:00:03.100000000 socket.cpp:697] [c10d] The IPv6 network addresses of (head-0.train, 29500) cannot be retrieved (gai error: -2 - Name or service not known).\n"
        + "[rank1]: torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (head-0.train, 29500). host not found\n",
    ),
    "etcd refuses, bare": Case(
        "etcd",
        ANYBODY,
        "2025-05-01 10:00:00,000 INFO starting\netcd endpoint http://etcd-0:2379: dial tcp 10.0.0.4:2379: connect: connection refused\n",
    ),
    "etcd refuses a client": Case(
        "etcd",
        ANYBODY,
        """2025-05-01 10:00:00,000 INFO starting
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/urllib3/connection.py", line 198, in _new_conn
    sock = connection.create_connection(
ConnectionRefusedError: [Errno 111] Connection refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/etcd/client.py", line 905, in wrapper
    response = payload(self, path, method, params=params, timeout=timeout)
  File "/usr/lib/python3/site-packages/urllib3/connectionpool.py", line 799, in urlopen
    retries = retries.increment(
urllib3.exceptions.MaxRetryError: HTTPConnectionPool(host='etcd-0', port=2379): Max retries exceeded with url: /version (Caused by NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'))
""",
    ),
    "OCDBT lock as a logger writes it": Case(
        "checkpoint-fs-error",
        ANYBODY,
        _GOOD
        + '2025-05-01 10:21:10,123 ERROR orbax: Error writing "ckpt/40/ocdbt.process_3/manifest.ocdbt": Failed to acquire lock on file "/ckpt/40/ocdbt.process_3/manifest.ocdbt.__lock": [OS error 5: Input/output error]\n',
    ),
    "another column name": Case(
        "data-loading",
        ANYBODY,
        "2025-05-01 10:00:00,000 INFO starting\nDataLoadingError: KeyError: 'content'\n",
    ),
    "no shared memory broadcast block for long": Case(
        "hang",
        ANYBODY,
        "INFO 05-01 10:00:00 [loader.py:1] Model loading took 14.9 GiB\n"
        + "".join(
            f"INFO 05-01 10:{m:02d}:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second.\n"
            for m in range(2, 30)
        ),
    ),
    "DEADLINE_EXCEEDED at registration": Case(
        "rendezvous",
        ANYBODY,
        "2025-05-01 10:00:00,000 INFO JAX process 3/8 starts\n"
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded\n"
        "RPC: /tensorflow.CoordinationService/RegisterTask\n",
    ),
    "host not found": Case(
        "rendezvous",
        ANYBODY,
        "2025-05-01 10:00:00,000 INFO starting\nRuntimeError: host not found: head-0.train:29500\n",
    ),
    "OCDBT lock, the verb first": Case(
        "checkpoint-fs-error",
        ANYBODY,
        _GOOD
        + "2025-05-01 10:21:10,123 ERROR Failed to acquire OCDBT lock: manifest.ocdbt.__lock\n",
    ),
    "hub unreachable": Case(
        "hub-unreachable",
        ANYBODY,
        "2025-05-01 10:00:00,000 INFO starting\nrequests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /api/models/x\"))\n",
    ),
    "control store lost": Case(
        "head-lost",
        ANYBODY,
        STEPS
        + "[2025-05-01 10:01:30,123 E 12 34] gcs_rpc_client.h:179: Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.\n",
    ),
    "port of the network card down": Case(
        "link-down",
        ANYBODY,
        STEPS + "2025-05-01 10:01:30,000 ERROR NET/IB : mlx5_0:1 Got async event : port error\n",
    ),
    "engine's own watchdog": Case(
        "engine-stalled",
        ANYBODY,
        "2025-05-01 10:20:00,000 ERROR engine: Watchdog timeout (self.watchdog_timeout=300)\n",
    ),
    "one message of a missing broadcast block": Case(
        "unknown-death",
        ANYBODY,
        "INFO 05-01 10:02:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second.\n",
    ),
    "missing broadcast blocks": Case(
        "hang",
        ANYBODY,
        "".join(
            f"INFO 05-01 10:{m:02d}:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second.\n"
            for m in range(2, 7)
        ),
    ),
    "a norm that is no number": Case(
        "nan-loss", ANYBODY, STEPS + "2025-05-01 10:01:30,000 ERROR grad norm is nan, stopping\n"
    ),
    "a GPU off the bus, its address on the line before": Case(
        "gpu-lost",
        {"gpu": "0000:5d:00"},
        STEPS
        + "2025-05-01 10:01:20,000 NVRM: GPU at PCI:0000:5d:00: GPU-6a7b\nGPU has fallen off the bus\n",
    ),
    "a full /dev/shm is its host's": Case(
        "data-loading",
        {"rank": None, "node": "node5"},
        STEPS
        + "node5: [rank3]: RuntimeError: unable to write to file </torch_123>: No space left on device (28)\n",
    ),
}
