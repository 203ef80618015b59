"""The identity of a rank, as its record states it."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_sentinel.progress.rank.notes import clip


class RankPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Which rank of which job."""

    job: str
    rank: int
    attempt: int = 0
    world_size: int | None = None
    local_rank: int | None = None
    role: str = ""
    """Such as "trainer" or "engine", set where one job has ranks of several kinds."""
    gpus: tuple[str, ...] = ()
    """The GPUs that the process may use: indices or UUIDs."""

    def place(self) -> dict[str, Any]:
        """These fields by their names, for another record of the same rank."""
        return {name: getattr(self, name) for name in RankPlace.__struct_fields__}


class RankIdentity(RankPlace, frozen=True, kw_only=True, omit_defaults=True):
    """Which rank the process is. Kept in its record as MessagePack, so later versions may add
    fields."""

    host: str = ""
    node: str = ""
    """Ray's node id in hex, where Ray is up in the process."""
    source: str = "assumed"
    """Who said the rank: "argument", "ray-train", "torch", "torchrun", "jax", "mpi", "tpu",
    "slurm", or "assumed" where nobody did and the process is taken for the only one."""

    @property
    def assumed(self) -> bool:
        """Whether the identity is only assumed; it may become known later."""
        return self.source == "assumed"


def encode(identity: RankIdentity) -> bytes:
    """The identity as MessagePack of at most 1000 bytes; texts are cut to fit."""
    return msgspec.msgpack.encode(
        msgspec.structs.replace(
            identity,
            job=clip(identity.job, 200),
            role=clip(identity.role, 40),
            host=clip(identity.host, 64),
            node=clip(identity.node, 64),
            source=clip(identity.source, 20),
            gpus=tuple(clip(gpu, 42) for gpu in identity.gpus[:10]),
        )
    )


def decode(data: bytes) -> RankIdentity:
    """The opposite of ``encode``. Raises msgspec.DecodeError (a ValidationError included)."""
    return msgspec.msgpack.decode(data, type=RankIdentity)
