# ruff: noqa: E501 - log lines are as long as they are
"""A connection that failed, by what the process that tells of it was doing: ranks come together,
train, load from a hub or from object storage, or ask etcd or Ray's head."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path

STEPS = "".join(
    f"2025-09-18 10:{n // 6:02d}:{n % 6}0,000 - INFO - step {n}/5000 | loss 2.5 | 10000 ms/step\n"
    for n in range(10, 60)
)
LIBRARY = "/opt/venv/lib/python3.12/site-packages/"
ROUTE = "OSError: [Errno 113] No route to host"
NETWORK = "OSError: [Errno 101] Network is unreachable"


def kind_of(tmp_path: Path, text: str) -> str:
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    return triage_path(tmp_path, load_catalogue(), now=0.0).kind


def raised(exception: str, *frames: str) -> str:
    """A traceback whose innermost ``frames`` are ``file:function``, below the program's own."""
    places = [frame.split(":") for frame in ("/ws/train.py:main", *frames)]
    lines = [f'  File "{file}", line 7, in {name}\n    call()\n' for file, name in places]
    return f"Traceback (most recent call last):\n{''.join(lines)}{exception}\n"


def unavailable(details: str, kind: str = "grpc._channel._InactiveRpcError") -> str:
    return (
        f"{kind}: <{kind.rpartition('.')[2]} of RPC that terminated with:\n"
        f'\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "{details}"\n'
        '\tdebug_error_string = "UNKNOWN:Error received from peer  {grpc_status:14}"\n>'
    )


@pytest.mark.parametrize(
    "text",
    [
        raised(ROUTE),
        raised("RuntimeError: connect() to 10.0.0.3:4711 failed: Network is unreachable"),
        raised("RuntimeError: sendmsg failed (errno: 101 - Network is unreachable)"),
        "ERROR: send to peer 10.0.0.7 failed: Host is down\n",
        "[rank5]: RuntimeError: writev: Network is down\n",
        "ssh: connect to host node7 port 22: No route to host\npdsh@node0: node7: ssh exited with exit code 255\n",
        raised(
            "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error: Socket closed\nAdditional GRPC error information from remote target /job:worker/replica:0/task:1:"
        ),
        raised(
            "tensorflow.python.framework.errors_impl.UnavailableError: failed to connect to all addresses"
        ),
        raised(
            "tensorflow.python.framework.errors_impl.UnavailableError: keepalive watchdog timeout"
        ),
        raised(
            "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:\n\nDetected at node CollectiveReduceV2"
        ),
        raised("jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: Connection reset by peer"),
        raised(unavailable("Socket closed")),
        raised(unavailable("keepalive watchdog timeout")),
        raised(
            unavailable(
                "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.9:50051: Failed to connect to remote host: Connection refused",
                "grpc.aio._call.AioRpcError",
            )
        ),
    ],
)
def test_between_ranks(tmp_path: Path, text: str) -> None:
    assert kind_of(tmp_path, text) == "rendezvous"
    assert kind_of(tmp_path, STEPS + text) == "transport-lost"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "rendezvous",
            raised(
                NETWORK,
                f"{LIBRARY}torch/distributed/distributed_c10d.py:init_process_group",
                f"{LIBRARY}torch/distributed/rendezvous.py:_env_rendezvous_handler",
            ),
        ),
        (
            "hub-unreachable",
            raised(
                "httpx.ConnectError: [Errno 112] Host is down",
                f"{LIBRARY}huggingface_hub/file_download.py:get_hf_file_metadata",
                f"{LIBRARY}httpx/_transports/default.py:map_httpcore_exceptions",
            ),
        ),
        (
            "storage",
            raised(
                "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host storage.googleapis.com:443 ssl:default [Network is unreachable]"
            ),
        ),
        ("storage", raised(NETWORK, f"{LIBRARY}gcsfs/core.py:_request")),
        (
            "storage",
            raised(
                "OSError: When reading information for key 'a/b' in bucket 'c': AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Couldn't connect to server"
            ),
        ),
        (
            "storage",
            raised(
                "urllib3.exceptions.MaxRetryError: HTTPConnectionPool(host='10.3.0.4', port=9000): Max retries exceeded with url: /bucket/obj (Caused by NewConnectionError('Failed to establish a new connection: [Errno 113] No route to host'))",
                f"{LIBRARY}minio/api.py:get_object",
            ),
        ),
        ("storage", "mount.nfs: No route to host\n"),
        (
            "checkpoint-fs-error",
            raised(ROUTE, "/ws/train.py:save_checkpoint", f"{LIBRARY}s3fs/core.py:_call_s3"),
        ),
        (
            "etcd",
            raised(
                unavailable(
                    "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.5:2379: Failed to connect to remote host: No route to host"
                )
            ),
        ),
        ("etcd", raised(unavailable("Socket closed"), f"{LIBRARY}etcd3/client.py:get")),
        (
            "head-lost",
            raised(
                "ray._raylet.RpcError: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:6379: Failed to connect to remote host: Connection refused"
            ),
        ),
        (
            "head-lost",
            raised(
                "ray.exceptions.RpcError: RPC error: Socket closed; rpc_code: 14",
                f"{LIBRARY}ray/_private/gcs_utils.py:internal_kv_get",
            ),
        ),
        (
            "head-lost",
            raised(
                unavailable("Socket closed", "grpc._channel._MultiThreadedRendezvous"),
                f"{LIBRARY}ray/util/client/dataclient.py:_main",
            ),
        ),
        (
            "actor-fail",
            raised(
                "ray.exceptions.ActorUnavailableError: The actor 12 is unavailable: The actor is temporarily unavailable: RpcError: RPC Error message: Socket closed; RPC Error details:  rpc_code: 14. The task may or may not have been executed on the actor."
            ),
        ),
        (
            "heartbeat-timeout",
            'F0918 10:10:27.620000 140 client.h:80] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details. absl::Status: UNAVAILABLE: Failed to send RPC to coordination service.\nAdditional GRPC error information from remote target coordination_service while calling /tensorflow.CoordinationService/PollForError:\n:UNKNOWN:Error received from peer  {grpc_message:"Socket closed", grpc_status:14}\n',
        ),
        (
            "unknown-death",
            "2025-09-18 10:10:00,000 - ERROR - Failed to export traces to otel:4317, error code: StatusCode.UNAVAILABLE\n",
        ),
        (
            "unknown-death",
            "2025-09-18 10:10:00,000 - WARNING - heartbeat to the monitor failed: [Errno 113] No route to host\n",
        ),
    ],
)
def test_to_a_service_whenever_it_was(tmp_path: Path, kind: str, text: str) -> None:
    assert kind_of(tmp_path, text) == kind
    assert kind_of(tmp_path, STEPS + text) == kind


NOT_CONNECTED = [
    "RuntimeError: Socket is not connected",
    "RuntimeError: Transport endpoint is not connected",
    "OSError: [Errno 107] Transport endpoint is not connected",
    "RuntimeError: Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "RuntimeError: Software caused connection abort",
]
REDUCE = f"{LIBRARY}torch/distributed/distributed_c10d.py:all_reduce"
BACKWARD = f"{LIBRARY}torch/autograd/graph.py:_engine_run_backward"


@pytest.mark.parametrize("exception", NOT_CONNECTED)
def test_an_errno_of_the_network_within_a_collective(tmp_path: Path, exception: str) -> None:
    for innermost in (REDUCE, BACKWARD):
        text = raised(exception, f"{LIBRARY}torch/distributed/c10d_logger.py:wrapper", innermost)
        assert kind_of(tmp_path, text) == "rendezvous"
        assert kind_of(tmp_path, STEPS + text) == "transport-lost"


@pytest.mark.parametrize("exception", NOT_CONNECTED)
def test_an_errno_of_the_network_in_the_programs_own_socket(tmp_path: Path, exception: str) -> None:
    for wrapper in ("elastic/multiprocessing/errors/__init__.py:wrapper", "fsdp/_fsdp.py:forward"):
        text = raised(exception, f"{LIBRARY}torch/distributed/{wrapper}", "/ws/reward.py:score")
        assert kind_of(tmp_path, STEPS + text) == "python-exception"


@pytest.mark.parametrize(
    "exception",
    [
        "torch.distributed.DistNetworkError: Connection reset by peer",
        "RuntimeError: [enforce fail at ../gloo/transport/tcp/device.cc:276] rv != -1. -1 vs -1. getpeername: Transport endpoint is not connected",
    ],
)
def test_an_errno_of_the_network_that_the_library_names_itself(
    tmp_path: Path, exception: str
) -> None:
    assert kind_of(tmp_path, STEPS + raised(exception)) == "transport-lost"


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcsfuse/ckpt/step_100'",
        "ls: cannot access '/mnt/gcs': Transport endpoint is not connected",
        "df: /mnt/blob: Transport endpoint is not connected",
        "BrokenPipeError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/x.bin'",
    ],
)
def test_a_mount_whose_server_ended(tmp_path: Path, line: str) -> None:
    assert kind_of(tmp_path, STEPS + f"{line}\n") == "storage"


def test_a_rank_that_says_why_it_failed_explains_a_lost_connection(tmp_path: Path) -> None:
    lost = raised("RuntimeError: Broken pipe", REDUCE).replace("\n", "\n[rank1]: ")
    own = raised("ZeroDivisionError: float division by zero").replace("\n", "\n[rank3]: ")
    text = STEPS + f"[rank1]: {lost.rstrip('[rank1]: ')}\n[rank3]: {own.rstrip('[rank3]: ')}\n"
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    told = triage_path(tmp_path, load_catalogue(), now=0.0)
    assert told.kind == "python-exception"
    assert [who.rank for who in told.culprits] == [3]


def test_ranks_that_come_together_anew_after_a_restart(tmp_path: Path) -> None:
    again = "2025-09-18 10:12:00,000 - INFO - Initializing process group (attempt 2)\n"
    told = f"2025-09-18 10:12:30,000 - ERROR - {ROUTE}\n"
    assert kind_of(tmp_path, STEPS + again + told) == "rendezvous"
    assert kind_of(tmp_path, STEPS + told + again.replace("12:00", "13:00")) == "transport-lost"


def test_a_serving_engine_that_has_worked(tmp_path: Path) -> None:
    works = "INFO 09-18 10:00:00 [loggers.py:116] Engine 000: Avg prompt throughput: 30.0 tokens/s, Avg generation throughput: 120.5 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
    assert kind_of(tmp_path, works + raised(ROUTE)) == "transport-lost"


GAIERROR = "socket.gaierror: [Errno -3] Temporary failure in name resolution"
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("kind", "first", "client", "then"),
    [
        (
            "storage",
            GAIERROR,
            f"{LIBRARY}boto3/s3/inject.py:upload_file",
            'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://runs.example/step_100"',
        ),
        (
            "hub-unreachable",
            GAIERROR,
            f"{LIBRARY}huggingface_hub/file_download.py:get_hf_file_metadata",
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /m",
        ),
        (
            "python-exception",
            REFUSED,
            f"{LIBRARY}requests/adapters.py:send",
            "requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.1.2.9', port=5000): Max retries exceeded with url: /get_reward",
        ),
        (
            "python-exception",
            REFUSED,
            f"{LIBRARY}redis/connection.py:connect",
            "redis.exceptions.ConnectionError: Error 111 connecting to 10.0.0.2:6380. Connection refused.",
        ),
    ],
    ids=["storage", "hub", "own server", "own database"],
)
def test_a_socket_error_that_a_client_handled(
    tmp_path: Path, kind: str, first: str, client: str, then: str
) -> None:
    # Only the frames below "During handling" show which client it was; its own error names
    # the address.
    inner = raised(first, f"{LIBRARY}urllib3/connection.py:_new_conn").replace(
        '  File "/ws/train.py", line 7, in main\n    call()\n', ""
    )
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    (tmp_path / "job.log").write_text(inner + chain + raised(then, client), encoding="utf-8")
    told = triage_path(tmp_path, load_catalogue(), now=0.0)
    assert told.kind == kind
    assert told.evidence[0].text == then


KERNEL = "[Thu Sep 18 {} 2025] mlx5_core 0000:1a:00.0 ib0: {}\n"


@pytest.mark.parametrize(
    ("when", "said", "kind"),
    [
        ("10:09:40", "Link down", "link-down"),
        ("10:09:40", "Port module event: module 0, Cable unplugged", "link-down"),
        ("10:09:40", "device's health compromised - reached miss count", "link-down"),
        ("10:05:00", "Link down", "unknown-death"),
        ("07:00:00", "Link down", "unknown-death"),
    ],
    ids=["link", "cable", "card", "survived", "long before"],
)
def test_a_port_that_the_kernel_saw_going_down(
    tmp_path: Path, when: str, said: str, kind: str
) -> None:
    (tmp_path / "dmesg-n03.log").write_text(KERNEL.format(when, said), encoding="utf-8")
    (tmp_path / "job.log").write_text(STEPS, encoding="utf-8")
    told = triage_path(tmp_path, load_catalogue(), now=0.0)
    assert told.kind == kind
    assert [who.node for who in told.culprits] == (["n03"] if kind == "link-down" else [])


@pytest.mark.parametrize(
    ("when", "process", "kind"),
    [
        ("10:09:50", "python[4711]", "signal-kill"),
        ("10:09:50", "nvidia-smi[4711]", "transport-lost"),
        ("10:05:00", "python[4711]", "transport-lost"),
    ],
    ids=["rank", "another program", "survived"],
)
def test_a_crash_that_the_kernel_saw_explains_the_peers_lost_connections(
    tmp_path: Path, when: str, process: str, kind: str
) -> None:
    crash = f"[Thu Sep 18 {when} 2025] {process}: segfault at 0 ip 00007f12 sp 00007f13 error 4 in libnccl.so.2[7f00]\n"
    lost = raised("RuntimeError: Broken pipe", REDUCE)
    (tmp_path / "dmesg-n03.log").write_text(crash, encoding="utf-8")
    (tmp_path / "job.log").write_text(STEPS + lost, encoding="utf-8")
    told = triage_path(tmp_path, load_catalogue(), now=0.0)
    assert told.kind == kind
    named = [("n03", 4711)] if kind == "signal-kill" else []
    assert [(who.node, who.pid) for who in told.culprits] == named


def test_a_port_long_ago_is_no_cause_of_a_start_that_fails(tmp_path: Path) -> None:
    down = KERNEL.format("07:07:31", "Link down")
    (tmp_path / "dmesg-n03.log").write_text(down, encoding="utf-8")
    assert kind_of(tmp_path, "2025-09-18 10:00:00,000 - INFO - begin\nValueError: x\n") == (
        "python-exception"
    )
