"""The options of a run of the doctor."""

from __future__ import annotations

import msgspec

GIB = 1 << 30


class ChecksFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with a user's own checks; its text travels to the nodes."""

    name: str
    text: str


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of the coming training. Needs that are not given are not checked."""

    nodes: int | None = None
    """Number of Ray nodes that must have joined."""
    gpus: int | None = None
    """Number of GPUs that the whole cluster must have."""
    environ: dict[str, str] = {}
    """Environment variables that the ranks will be given, on top of each node's own."""
    ports: tuple[int, ...] = ()
    """TCP ports that must be free on every node."""
    interface: str = ""
    """The value of ``NCCL_SOCKET_IFNAME``; if empty, the variable is read."""
    checkpoints: tuple[str, ...] = ()
    """Folders, or ``s3://`` and ``gs://`` addresses, that checkpoints are written to."""
    need_bytes: int = 10 * GIB
    """Free bytes that each checkpoint folder must have."""
    rdzv_endpoint: str = ""
    rdzv_id: str = ""
    rdzv_backend: str = ""
    """The rendezvous backend: "c10d", "etcd", "etcd-v2" or "static"; if empty, ``PET_RDZV_BACKEND``
    is read."""
    skew_seconds: float = 1.0
    """Seconds by which the clocks of two nodes may differ before it is a failure; from a tenth of
    it on there is a warning."""
    packages: tuple[str, ...] = ()
    """Names of distributions that must be equal on all nodes, besides the usual ones."""
    config_file: str = ""
    """Path of the training's own YAML file."""
    config_like: str = ""
    """Path of a similar YAML file that is known to be good: keys that it lacks are questioned."""
    collective: bool = False
    """Whether to make a sum over all nodes, which takes a minute and GPU memory."""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    sources: tuple[ChecksFile, ...] = ()
    deadline: float = 10.0
    """Seconds that one check may take on one node."""

    def wants(self, name: str) -> bool:
        """Whether the check of this name must run."""
        return name not in self.skip and (not self.only or name in self.only)
