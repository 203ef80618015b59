# ruff: noqa: E501 - log lines are as long as they are
"""What goes wrong in elastic training: set-up, rendezvous, checkpoints, memory, configuration."""

from __future__ import annotations

import socket
from pathlib import Path

from ray_sentinel.doctor.check import Here
from ray_sentinel.doctor.checks.disk import DiskCheck
from ray_sentinel.doctor.checks.etcd import EtcdCheck
from ray_sentinel.doctor.checks.etcd import EtcdFacts as Store
from ray_sentinel.doctor.checks.gpus import GpuCard, GpusCheck
from ray_sentinel.doctor.checks.gpus import GpusFacts as Cards
from ray_sentinel.doctor.checks.interfaces import InterfacesCheck
from ray_sentinel.doctor.checks.interfaces import InterfacesFacts as Have
from ray_sentinel.doctor.checks.object_store import ObjectStoreCheck, StoreReading
from ray_sentinel.doctor.checks.object_store import ObjectStoreFacts as Places
from ray_sentinel.doctor.checks.ports import PortsCheck
from ray_sentinel.doctor.checks.rank_environment import RankEnvironmentCheck
from ray_sentinel.doctor.checks.rank_environment import RankEnvironmentFacts as Ranks
from ray_sentinel.doctor.checks.rendezvous import RendezvousCheck
from ray_sentinel.doctor.checks.rendezvous import RendezvousFacts as Met
from ray_sentinel.doctor.checks.versions import VersionsCheck
from ray_sentinel.doctor.checks.versions import VersionsFacts as Software
from ray_sentinel.doctor.endpoint import meeting_point
from ray_sentinel.doctor.machine import Interface
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.logs.checkpoints import scan_checkpoints
from tests.support.inventory.commands import command
from tests.support.inventory.doctors import config, doctor, judged, looked
from tests.support.inventory.logs import explained, harmless, log, remedy, triaged
from tests.support.inventory.row import Check, Row

MISSING = (
    "RuntimeError: Missing required environment variables: ['RANK', 'LOCAL_RANK', 'WORLD_SIZE']"
)
NCCL = "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:121, unhandled system error, NCCL version 2.20.5"
NO_ROUTE = "node1:10:20 [0] misc/socket.cc:456 NCCL WARN Connect to 10.0.0.7<4567> failed : No route to host"
INIT = "RuntimeError: Distributed initialization timed out"
IN_USE = "RuntimeError: Address already in use"
ETCD = "Failed to connect to etcd at localhost:2379"
MEET = "RendezvousTimeoutError: Timed out waiting for rendezvous"
STALE = "RendezvousStateError: Stale state detected"
SAVE = (
    "CheckpointSaveError: [NVME] Failed to save checkpoint to '/nvme/checkpoints/step_100.pt': {}"
)
FULL = SAVE.format("No space left on device")
S3 = "CheckpointSaveError: [S3] Failed to save checkpoint: NoCredentialsError"
LOAD = "CheckpointLoadError: Failed to load checkpoint from '/nvme/checkpoints/step_100.pt': Missing required keys: {'model_state_dict'}"
SECURITY = "SECURITY: Loading checkpoint with weights_only=False enables arbitrary code execution"
SNAPSHOT = (
    "MemoryLimitExceeded: Cannot save snapshot: 2048.0MB required, but only 512.0MB available"
)
OOM = "RuntimeError: CUDA out of memory. Tried to allocate 512 MiB"
BELOW = "TopologyChangeError: Topology change (4 -> 1 workers) failed: World size below min_nodes"
NOTHING = "TopologyChangeError: No checkpoint available for recovery"
CONFIG = "ConfigurationError: Configuration error in 'scaling': Unknown scaling strategy 'invalid'. Valid options: ['variable_batch', 'constant_batch']"
INDEX = "DataLoadingError: Failed to load data from 'data/train.jsonl': Token index file not found"
KEY = "DataLoadingError: KeyError: 'text'"
UNKNOWN = "2025-01-02 10:00:01 INFO nothing of interest"

LO = Interface(name="lo", up=True, kind="loopback", addresses=("127.0.0.1",))
ETH = Interface(name="eth0", up=True, kind="ethernet", addresses=("10.0.0.1",))
RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "29500",
}
FIRST = Ranks(RANK, ("10.0.0.1",), ("10.0.0.1",))


def met(run: str = "x", endpoint: str = "a:29400", **facts: object) -> Met:
    """What a node found of the rendezvous."""
    wish = meeting_point(RunPlan(rdzv_endpoint=endpoint, rdzv_id=run), {})
    return Met(wish, **{"resolves": True, "answers": True, **facts})  # type: ignore[arg-type]


def store(**facts: object) -> Store:
    """What etcd answered."""
    return Store("http://e:2379", "mine", **{"healthy": True, "v2": True, **facts})  # type: ignore[arg-type]


def _held(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        plan = RunPlan(ports=(port,))
        (found,) = judged(PortsCheck(), {"a": PortsCheck().look(plan, Here(host="a"))}, plan)
        assert (found.outcome, str(port) in found.seen) == ("failure", True)
    (found,) = judged(PortsCheck(), {"a": PortsCheck().look(plan, Here(host="a"))}, plan)
    assert found.outcome == "ok"


def _refused(says: str, problem: str) -> Check:
    bad = Places((StoreReading(url="s3://b/c", tool="aws", problem=problem),))
    return doctor(
        ObjectStoreCheck(),
        {"a": bad},
        {"a": Places((StoreReading(url="s3://b/c", tool="aws"),))},
        says,
    )


def _tiers(folder: Path) -> None:
    for tier in ("memory", "nvme", "s3"):
        (folder / tier / "step_100").mkdir(parents=True)
        (folder / tier / "step_100" / ".metadata").write_bytes(b"x")
        (folder / tier / "step_100" / "__0_0.distcp").write_bytes(b"x")
    found = scan_checkpoints(folder, now=0.0)
    assert {one.tier for one in found.checkpoints} == {"memory", "local", "remote"}


def _tell_more(folder: Path) -> None:
    silent = " ".join(triaged(folder / "silent", "").next_steps)
    for word in (
        "LOGLEVEL=DEBUG",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL",
        "NCCL_DEBUG=INFO",
        "NCCL_DEBUG_FILE",
    ):
        assert word in silent
    assert "LOGLEVEL" not in " ".join(triaged(folder / "clear", OOM).next_steps)


def _room(folder: Path) -> RunPlan:
    (folder / "ckpt").mkdir()
    return RunPlan(checkpoints=(str(folder / "ckpt"),), need_bytes=1)


CARDS = Cards((GpuCard("NVIDIA H100"),))
DOCTOR_CONFIG = ("doctor", "--local", "--config-file", "train.yaml")

ROWS = [
    # First looks
    Row(
        "look.gpus",
        "are the GPUs there",
        doctor(
            GpusCheck(),
            {"a": CARDS, "b": Cards(())},
            {"a": CARDS, "b": CARDS},
            "GPU",
            plan=RunPlan(gpus=2),
        ),
    ),
    Row(
        "look.etcd",
        "does etcd say that it is healthy",
        doctor(EtcdCheck(), {"a": store(healthy=False)}, {"a": store()}, "/health"),
    ),
    Row(
        "look.nccl",
        "NCCL's own words on two processes",
        command("doctor", "--collective", collective=True),
    ),
    Row(
        "look.s3",
        "are the S3 credentials good",
        _refused("AWS_ACCESS_KEY_ID", "Unable to locate credentials"),
    ),
    Row(
        "look.disk",
        "room for checkpoints on local disk",
        looked(DiskCheck(), _room, lambda folder: (folder / "ckpt").rmdir(), "mkdir -p"),
    ),
    Row("look.port", "who holds the launcher's port", Check("doctor: ports", _held)),
    Row(
        "look.environment",
        "which variables the launcher set",
        doctor(
            RankEnvironmentCheck(),
            {"a": Ranks({"RANK": "0"}, ("10.0.0.1",))},
            {"a": FIRST},
            "WORLD_SIZE",
            "torchrun",
        ),
    ),
    # Set-up
    Row(
        "env.symptom",
        "ranks without the launcher's variables",
        log("missing-env", MISSING, "KeyError: 'LOCAL_RANK'"),
    ),
    Row("env.launch", "start it by torchrun", remedy(MISSING, "torchrun --nproc-per-node")),
    Row(
        "env.multi-node",
        "several nodes: the same endpoint, id and number of nodes",
        remedy(MEET, "--rdzv-id", "--rdzv-endpoint", "--nnodes"),
    ),
    Row("nccl.system-error", "NCCL's unhandled system error", log("nccl-init", NCCL)),
    Row("nccl.no-route", "NCCL cannot reach a peer", log("nccl-init", NO_ROUTE)),
    Row("nccl.driver", "look at GPUs and driver", remedy(NCCL, "nvidia-smi")),
    Row(
        "nccl.versions",
        "NCCL differs between nodes",
        doctor(
            VersionsCheck(),
            {"a": Software({"NCCL": "2.20"}), "b": Software({"NCCL": "2.21"})},
            {"a": Software({"NCCL": "2.20"}), "b": Software({"NCCL": "2.20"})},
            "NCCL",
        ),
    ),
    Row("nccl.debug", "let NCCL tell more", remedy(NCCL, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS")),
    Row("nccl.interface", "choose the interface", remedy(NCCL, "NCCL_SOCKET_IFNAME")),
    Row(
        "nccl.interface-missing",
        "the chosen interface is not there",
        doctor(
            InterfacesCheck(),
            {"a": Have((LO, ETH), {"NCCL_SOCKET_IFNAME": "ib9"})},
            {"a": Have((LO, ETH), {"NCCL_SOCKET_IFNAME": "eth0"})},
            "no interface ib9",
        ),
    ),
    Row(
        "nccl.reach",
        "nodes must reach each other; the firewall between them",
        remedy(NO_ROUTE, "firewall", "routes"),
    ),
    Row("init.symptom", "initialisation times out", log("rendezvous", INIT)),
    Row("init.address", "MASTER_ADDR is the node of rank 0", remedy(INIT, "MASTER_ADDR", "rank 0")),
    Row(
        "init.address-checked",
        "MASTER_ADDR is compared with the node of rank 0",
        doctor(
            RankEnvironmentCheck(),
            {
                "a": Ranks(RANK, ("10.0.0.1",), ("10.0.0.2",)),
                "b": Ranks({**RANK, "RANK": "1"}, ("10.0.0.2",), ("10.0.0.2",)),
            },
            {"a": FIRST, "b": Ranks({**RANK, "RANK": "1"}, ("10.0.0.2",), ("10.0.0.1",))},
            "export MASTER_ADDR=10.0.0.1",
        ),
    ),
    Row("init.port", "MASTER_PORT must be open", remedy(INIT, "MASTER_PORT", "open")),
    Row("init.timeout", "give slow starts more time", remedy(INIT, "timeout=")),
    Row(
        "init.single-node",
        "localhost is for a single node",
        doctor(
            RankEnvironmentCheck(),
            {
                h: Ranks(
                    {**RANK, "MASTER_ADDR": "localhost", "RANK": h},
                    ("127.0.0.1", f"10.0.0.{h}"),
                    ("127.0.0.1",),
                )
                for h in "01"
            },
            {
                "a": Ranks(
                    {**RANK, "MASTER_ADDR": "localhost"}, ("127.0.0.1", "10.0.0.1"), ("127.0.0.1",)
                )
            },
            "localhost",
        ),
    ),
    Row(
        "port.symptom",
        "the port is in use",
        log("port-in-use", IN_USE, "OSError: [Errno 98] Address already in use"),
    ),
    Row("port.who", "find the holder and end it", remedy(IN_USE, "ss -ltnp", "end it")),
    Row("port.other", "take another port", remedy(IN_USE, "--master-port")),
    # Rendezvous
    Row(
        "etcd.refused-bare",
        "a refused connection with no address",
        log("rendezvous", "ConnectionRefusedError: [Errno 111] Connection refused", says=("etcd",)),
        "a refused connection alone may be any service: it is a rendezvous failure, and etcd is one of those named",
    ),
    Row(
        "etcd.refused",
        "a refused connection to etcd's port",
        log("etcd", "ConnectionRefusedError: [Errno 111] Connection refused: etcd-host:2379"),
    ),
    Row("etcd.symptom", "etcd cannot be reached", log("etcd", ETCD)),
    Row("etcd.start", "start it", remedy(ETCD, "start it")),
    Row("etcd.health", "its health page", remedy(ETCD, "2379/health")),
    Row("rdzv.symptom", "the rendezvous times out", log("rendezvous", MEET)),
    Row(
        "rdzv.same-id",
        "one id for all",
        doctor(
            RendezvousCheck(),
            {"a": met("x"), "b": met("y")},
            {"a": met("x"), "b": met("x")},
            "--rdzv-id differs",
        ),
    ),
    Row("rdzv.more-time", "a longer timeout", remedy(MEET, "--rdzv-conf=timeout")),
    Row("rdzv.nodes", "as many nodes as expected, or a range", remedy(MEET, "--nnodes", "MIN:MAX")),
    Row("stale.symptom", "the state of an earlier run", log("rendezvous", STALE)),
    Row("stale.own-id", "an id for each run", remedy(STALE, "rdzv-id of its own")),
    Row("stale.keys", "delete its keys", remedy(STALE, "/torch/elastic")),
    Row(
        "stale.found",
        "its keys are found before the run, with the command that deletes them",
        doctor(
            EtcdCheck(),
            {"a": store(keys=("/torch/elastic/rendezvous/mine",))},
            {"a": store()},
            "etcdctl",
            "del",
        ),
    ),
    Row("stale.restart", "or restart the store", remedy(STALE, "restart the store")),
    # Checkpoints
    Row("save.full", "no room", log("checkpoint-fs-error", FULL)),
    Row(
        "save.rights",
        "no right to write",
        log("checkpoint-fs-error", SAVE.format("Permission denied")),
    ),
    Row(
        "save.missing",
        "no such folder",
        log("checkpoint-fs-error", SAVE.format("No such file or directory")),
    ),
    Row("save.room", "look at the room that is left", remedy(FULL, "df -h")),
    Row(
        "save.remove",
        "remove old ones, keep few",
        remedy(FULL, "remove old checkpoints", "keep fewer"),
    ),
    Row("save.may-write", "the user must be allowed to write", remedy(FULL, "may be written")),
    Row("save.make", "make the folder", remedy(FULL, "directory exists")),
    Row("s3.credentials", "no credentials", log("checkpoint-fs-error", S3)),
    Row(
        "s3.refused",
        "403 from the store",
        log(
            "checkpoint-fs-error",
            "botocore.exceptions.ClientError: An error occurred (403) when calling the PutObject operation: Forbidden",
        ),
    ),
    Row(
        "s3.bucket",
        "no such bucket",
        log(
            "checkpoint-fs-error",
            "botocore.errorfactory.NoSuchBucket: An error occurred (NoSuchBucket) when calling the PutObject operation: The specified bucket does not exist",
            says=("bucket exists",),
        ),
    ),
    Row(
        "s3.configure",
        "where credentials come from: variables or a role",
        _refused("IAM role", "Unable to locate credentials"),
    ),
    Row(
        "s3.list",
        "list the bucket",
        command("doctor", "--local", "--checkpoint-dir", "s3://bucket/run"),
    ),
    Row(
        "s3.rights",
        "which four rights are needed",
        _refused("s3:DeleteObject", "An error occurred (AccessDenied) when calling ListObjectsV2"),
    ),
    Row(
        "s3.make",
        "make the bucket",
        _refused("create the bucket", "An error occurred (NoSuchBucket)"),
    ),
    Row("load.keys", "keys are missing in it", log("checkpoint-load", LOAD)),
    Row(
        "load.state",
        "the model's state does not fit",
        log("checkpoint-load", "RuntimeError: Error(s) in loading state_dict for Llama"),
    ),
    Row("load.not-strict", "load what fits", remedy(LOAD, "strict=False")),
    Row(
        "load.trusted",
        "a trusted file may hold more than tensors",
        remedy(LOAD, "weights_only=False", "trusted"),
    ),
    Row("load.tier", "fall back to another tier", remedy(LOAD, "another tier")),
    Row(
        "load.tiers",
        "memory, local disk and remote store are told apart",
        Check("triage --checkpoints", _tiers),
    ),
    Row("load.earlier", "or to an earlier one", remedy(LOAD, "earlier one")),
    Row(
        "security.warning",
        "the warning about full deserialisation is no failure",
        harmless(SECURITY),
    ),
    Row(
        "security.trusted",
        "what the warning means",
        explained(SECURITY, "trust", "for one's own checkpoints"),
    ),
    # Memory
    Row("snapshot.symptom", "an in-memory checkpoint does not fit", log("oom-host", SNAPSHOT)),
    Row("snapshot.limit", "raise the limit", remedy(SNAPSHOT, "raise the snapshot memory limit")),
    Row("snapshot.fewer", "keep fewer", remedy(SNAPSHOT, "keep fewer snapshots")),
    Row(
        "snapshot.off",
        "do without, and save to disk more often",
        remedy(SNAPSHOT, "turn the memory tier off", "more often"),
    ),
    Row(
        "snapshot.off-is-valid",
        "0 switches memory snapshots off, and is no mistake",
        config(
            "checkpoint_interval: 500",
            "checkpoint_interval: 0",
            "checkpoint_interval must be positive",
        ),
    ),
    Row("oom.symptom", "GPU memory is full", log("oom-gpu", OOM)),
    Row("oom.batch", "a smaller batch", remedy(OOM, "batch size")),
    Row("oom.accumulate", "accumulate gradients", remedy(OOM, "accumulate gradients")),
    Row(
        "oom.recompute",
        "checkpoint activations",
        remedy(OOM, "gradient (activation) checkpointing"),
    ),
    Row("oom.fragments", "fragmented memory", remedy(OOM, "expandable_segments")),
    # Another world size
    Row("world.symptom", "fewer workers than the least", log("topology-change", BELOW)),
    Row(
        "world.lower",
        "lower the least, or bring nodes back",
        remedy(BELOW, "min_nodes", "nodes back"),
    ),
    Row("world.why", "see why workers fail", remedy(BELOW, "why the workers failed")),
    Row("recover.symptom", "nothing to recover from", log("topology-change", NOTHING)),
    Row("recover.on", "turn checkpoints on", remedy(NOTHING, "checkpoints on")),
    Row("recover.new", "a new training begins anew", remedy(NOTHING, "starts from the beginning")),
    Row("recover.remote", "look into the remote store", remedy(NOTHING, "remote tier")),
    # Configuration
    Row("config.symptom", "an invalid value", log("config", CONFIG)),
    Row(
        "config.strategy",
        "a strategy that does not exist",
        config("strategy: constant_batch", "strategy: invalid", "is no strategy", "variable_batch"),
    ),
    Row(
        "config.validate",
        "validate it before the run",
        command(*DOCTOR_CONFIG, config_file="train.yaml"),
    ),
    Row(
        "config.validate-told",
        "and that is what the triage recommends",
        remedy(CONFIG, "doctor --config-file"),
    ),
    Row(
        "config.min-nodes",
        "min_nodes is at least 1",
        config("min_nodes: 2", "min_nodes: 0", "elastic.min_nodes must be", "min_nodes: 1"),
    ),
    Row(
        "config.max-nodes",
        "max_nodes is at least min_nodes",
        config("max_nodes: 8", "max_nodes: 1", "less than min_nodes"),
    ),
    Row(
        "config.interval",
        "checkpoint_interval is positive",
        config("checkpoint_interval: 500", "checkpoint_interval: 0", "must be positive", "500"),
    ),
    Row(
        "config.batch",
        "constant_batch needs target_global_batch_size",
        config(", target_global_batch_size: 64", "", "constant_batch needs it", "variable_batch"),
    ),
    Row(
        "config.min-nodes-logged",
        "the same in a log",
        log(
            "config",
            "ConfigurationError: min_nodes must be >= 1",
            "ConfigurationError: min_nodes cannot exceed max_nodes",
            "ConfigurationError: checkpoint_interval must be positive",
            "ConfigurationError: target_global_batch_size is required for constant_batch strategy",
        ),
    ),
    Row(
        "yaml.symptom",
        "YAML that cannot be read",
        log("config", "yaml.scanner.ScannerError: mapping values are not allowed here"),
    ),
    Row(
        "yaml.space",
        "no space after a colon",
        config("  lr: 1e-4\n", "  lr:1e-4\n", "space after the colon of lr", "lr: 1e-4"),
    ),
    Row("yaml.tab", "a tab", config("  lr: 1e-4\n", "\tlr: 1e-4\n", "tab", "spaces")),
    Row(
        "yaml.quotes",
        "a colon in an unquoted value",
        config('"my-job: 123"', "my-job: 123", "colon", '"my-job: 123"'),
    ),
    # Data
    Row("index.symptom", "no token index", log("data-loading", INDEX)),
    Row("index.build", "build it first", remedy(INDEX, "build the token index")),
    Row("key.symptom", "records with another key", log("data-loading", KEY)),
    Row("key.name", "name the key", remedy(KEY, "text_key")),
    Row("key.convert", "or convert the records", remedy(KEY, "convert the records")),
    # Help
    Row(
        "help.more",
        "let the launcher, torch and NCCL tell more the next time",
        Check("triage: next steps", _tell_more),
    ),
    Row("help.report", "what a report needs: messages, stacks, versions", command("dump")),
]
