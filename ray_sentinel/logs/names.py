"""What a log's path shows: its kind, and whose lines it contains.

Ray (``ray/_private/node.py``, ``log_monitor.py``): ``worker-<worker id>-<job id>-<pid>.out|err``,
``python-core-worker-<worker id>_<pid>.log``, ``raylet.out``, ``gcs_server.out``, ``monitor.log``,
``job-driver-<submission id>.log``. torchrun: ``<run>/attempt_0/3/stderr.log``. Harvested folders
hold one folder a node: ``ray_logs/<host>/...``. Kubernetes:
``/var/log/pods/<namespace>_<pod>_<uid>/<container>/0.log``.
"""

from __future__ import annotations

from pathlib import PurePath

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.lines import NOBODY, Origin

_WORKER = re.compile(r"^worker-(?P<worker>[0-9a-f]+)-(?P<job>[0-9a-f]+)-(?P<pid>\d+)\.(?:out|err)")
_CORE = re.compile(r"^python-core-(?:worker|driver)-(?P<worker>[0-9a-f]+)_(?P<pid>\d+)\.")
_RANK = re.compile(r"(?:^|[^a-zA-Z])rank[-_.]?(?P<rank>\d+)(?=\D|$)", re.IGNORECASE)
_TASK = re.compile(
    r"(?:^|[-_.])(?:task|proc|process|worker)[-_.]?(?P<rank>\d{1,5})\.(?:log|out|err|txt)"
)
_TORCHRUN = re.compile(r"^attempt_\d+$")
_NCCL = re.compile(
    r"^(?:nccl|rccl)[^/]*?(?:[._-](?P<host>[A-Za-z][\w-]*\d))?[._-](?P<pid>\d+)(?:\.\w+)?$",
    re.IGNORECASE,
)
_POD = re.compile(
    r"^[a-z0-9][a-z0-9.-]{0,252}_(?P<pod>[a-z0-9][a-z0-9.-]{0,252})_(?:[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32})$"
)
"""A pod's folder in ``/var/log/pods``: namespace, name and uid (kubelet; for static pods, a
hash)."""
_CONTAINER = re.compile(
    r"^(?P<pod>[a-z0-9][a-z0-9.-]{0,252})_[a-z0-9.-]{1,253}_[a-z0-9.-]{1,253}-[0-9a-f]{64}\.log$"
)
"""A link in ``/var/log/containers``: pod, namespace, container and the container's id."""
_MACHINE = re.compile(
    r"^(?:(?:dmesg|kern|kernel|journal)[-_.](?:(?P<address>\d{1,3}(?:\.\d{1,3}){3})(?:[-_.]|$)|(?P<host>[A-Za-z][\w-]*\d[\w-]*))"
    r"|(?P<before>[A-Za-z][\w-]*\d[\w-]*)[-_.]dmesg(?:[-_.]|$))"
)
"""A kernel log that is named after its machine."""
_IP = re.compile_anchored(r"^(?:ip-)?\d{1,3}([.-])\d{1,3}\1\d{1,3}\1\d{1,3}$")
_HOST = re.compile(r"^[A-Za-z][A-Za-z0-9]*(?:[-.][A-Za-z0-9]+)*$")
_KINDS: tuple[tuple[str, str], ...] = (
    (r"^raylet", "raylet"),
    (r"^gcs_server", "gcs"),
    (r"^monitor\.", "monitor"),
    (r"^job-driver", "driver"),
    (r"^python-core-", "ray"),
    (r"^event_", "events"),
    (r"^(?:dashboard|agent-|log_monitor|runtime_env|ray_client|old|debug_state)", "ray"),
    (r"^ray-train-", "worker"),
    (r"^(?:dmesg|kern\.log|kernel|journal|syslog|messages|kmsg)", "kernel"),
    (r"^[\w.-]{1,200}[-_.]dmesg(?:\.\w{1,8})*$", "kernel"),
    (r"^(?:nccl|rccl)", "nccl"),
    (r"^slurm", "slurm"),
    (r"^(?:prometheus|metrics_exporter|tensorboard)", "agent"),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), kind) for pattern, kind in _KINDS)
_NO_NODES = frozenset(
    {"logs", "log", "ray_logs", "nodes", "session_latest", "tmp", "ray", "old", "train", "events"}
)
_SKIPPED = (
    "pt pth bin safetensors ckpt npy npz pkl pickle parquet arrow h5 hdf5 onnx so o pyc py sh whl "
    "zip tar tgz png jpg jpeg gif svg pdf mp4 html css js ts c cc h cpp cu cuh md rst toml yaml "
    "yml lock sock pid db sqlite nsys-rep prof trace model distcp metadata idx tsv csv proto pb "
    "ipynb wal db-wal"
)
SKIPPED_SUFFIXES = frozenset(f".{suffix}" for suffix in _SKIPPED.split())
"""The suffixes of files that are not logs."""
_SKIPPED_NAMES = re.compile(
    r"^(?:events\.out\.tfevents|_dump_(?:others_)?\d+|core\.\d+|LICENSE|README|"
    # What Ray writes beside ``logs`` about its own ports: numbers and addresses, no lines.
    r"\w+_port_[0-9a-f]{28,}$|(?:ports_by_node|node_ip_address|prom_metrics_service_discovery)\.json)"
)


def file_kind(path: PurePath) -> str:
    """The kind of a log, from its name and folders."""
    for pattern, kind in _COMPILED:
        if pattern.match(path.name):
            return kind
    parts = {part.lower() for part in path.parts[:-1]}
    if "metrics_exporter" in parts or "prometheus" in parts:
        return "agent"
    if _WORKER.match(path.name):
        return "worker"
    if _RANK.search(path.name) or _TASK.search(path.name):
        return "rank"
    return "log"


def file_origin(path: PurePath, parts: tuple[str, ...]) -> Origin:
    """Whose lines the file contains; ``parts`` are the folders below the requested place."""
    name = path.name
    pod = next((match["pod"] for part in reversed(parts) if (match := _POD.match(part))), "")
    if match := _CONTAINER.match(name):
        pod = match["pod"]
    host = pod or next((part for part in reversed(parts) if is_host(part)), "")
    ip = host.removeprefix("ip-").replace("-", ".") if _IP.match(host) else ""
    if match := _WORKER.match(name) or _CORE.match(name):
        return Origin(pid=int(match["pid"]), host=host, ip=ip)
    if match := _RANK.search(name) or _TASK.search(name):
        return Origin(rank=int(match["rank"]), host=host, ip=ip)
    if len(parts) >= 2 and _TORCHRUN.match(parts[-2]) and parts[-1].isdigit():
        return Origin(local_rank=int(parts[-1]), host=host, ip=ip)
    for part in reversed(parts[-2:]):
        if match := _RANK.fullmatch(part):
            return Origin(rank=int(match["rank"]), host=host, ip=ip)
    if match := _NCCL.match(name):
        return Origin(pid=int(match["pid"]), host=match["host"] or host, ip=ip)
    machine = _MACHINE.match(name)
    if machine and not host:
        host = machine["address"] or machine["host"] or machine["before"]
        ip = machine["address"] or ""
    return Origin(host=host, ip=ip) if host else NOBODY


def is_host(part: str) -> bool:
    """Whether a folder's name looks like a node's: an address, or letters with a number."""
    if part.lower() in _NO_NODES or part.startswith(
        ("session_", "attempt_", "step_", "checkpoint")
    ):
        return False
    if _RANK.search(part):
        return False
    if _IP.match(part):
        return True
    return len(part) < 80 and _HOST.match(part) is not None and any(map(str.isdigit, part))


def is_log_name(path: PurePath) -> bool:
    """Whether a file may be a log, by its name alone."""
    if _SKIPPED_NAMES.match(path.name):
        return False
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in (".gz", ".xz", ".bz2", ".zst"):
        suffixes.pop()
    return not (suffixes and suffixes[-1] in SKIPPED_SUFFIXES)
