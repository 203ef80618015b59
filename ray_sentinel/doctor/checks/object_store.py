"""Credentials and rights of ``s3://`` and ``gs://`` checkpoint places, by listing one object."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

import msgspec

from ray_sentinel import process
from ray_sentinel.doctor.check import (
    Check,
    CheckInput,
    CheckResult,
    Here,
    failure,
    ok,
    skipped,
    warning,
)
from ray_sentinel.doctor.plan import RunPlan

SECONDS = 8.0
"""Seconds that a listing may take: the tools try for minutes if nobody answers."""
_TOOLS = {"s3": ("aws",), "gs": ("gcloud", "gsutil")}
_KEYS = "give credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or an IAM role"
_AWAY = "the node has no way to the store: look at proxy, endpoint and security group"
_REMEDIES = (
    ("credential", _KEYS),
    ("accesskeyid", _KEYS),
    ("signaturedoesnotmatch", _KEYS),
    ("activeaccount", "log in: gcloud auth login, or give the node a service account"),
    ("token", "the token has expired: log in anew, or use a role of the instance"),
    ("accessdenied", "allow s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject on it"),
    ("403", "allow s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject on it"),
    ("nosuchbucket", "create the bucket, or mend its name"),
    ("404", "create the bucket, or mend its name"),
    ("doesnothavestorage", "allow storage.objects list, get, create and delete on it"),
    ("connect", _AWAY),
    ("wasendedafter", _AWAY),
)


class StoreReading(msgspec.Struct, frozen=True, kw_only=True):
    """One place as seen from one node."""

    url: str
    tool: str = ""
    """The client that was used; empty if none is installed."""
    problem: str = ""


class ObjectStoreFacts(msgspec.Struct, frozen=True):
    """All places."""

    places: tuple[StoreReading, ...]


class ObjectStoreCheck(Check[ObjectStoreFacts]):
    """Lists at most one object; writes nothing, so the right to write is not proven."""

    name = "object-store"
    about = "the checkpoint store lets us in"
    facts = ObjectStoreFacts

    def look(self, plan: RunPlan, here: Here) -> ObjectStoreFacts | None:
        """Ask with the client that is installed, in the ranks' environment."""
        urls = [path for path in plan.checkpoints if urlsplit(path).scheme in _TOOLS]
        return ObjectStoreFacts(tuple(_try(url, here) for url in urls)) if urls else None

    def judge(self, case: CheckInput[ObjectStoreFacts]) -> Iterable[CheckResult]:
        """A missing client is a warning, denied access a failure."""
        if not case.seen:
            yield skipped("no checkpoint place is an object store")
            return
        for host, facts in case.seen.items():
            for place in facts.places:
                if not place.tool:
                    wanted = " or ".join(_TOOLS[urlsplit(place.url).scheme])
                    text = f"{place.url}: not checked, for {wanted} is not installed here"
                    yield warning(text, f"install {wanted}", host)
                elif place.problem:
                    yield failure(f"{place.url}: {place.problem}", _remedy(place.problem), host)
                else:
                    yield ok(
                        f"{place.url} can be listed ({place.tool}); writing was not tried", host
                    )


def _try(url: str, here: Here) -> StoreReading:
    scheme = urlsplit(url).scheme
    program = next((name for name in _TOOLS[scheme] if shutil.which(name)), "")
    if not program:
        return StoreReading(url=url)
    done = process.run(_command(program, url), deadline=SECONDS, env=dict(here.environ))
    if done.ok:
        return StoreReading(url=url, tool=program)
    return StoreReading(url=url, tool=program, problem=done.explain())


def _command(program: str, url: str) -> Sequence[str]:
    parts = urlsplit(url)
    if program == "aws":
        key = parts.path.strip("/")
        command = ["aws", "s3api", "list-objects-v2", "--bucket", parts.netloc, "--max-items", "1"]
        return [*command, *(["--prefix", key + "/"] if key else [])]
    # Objects, not the bucket: roles for objects do not cover the bucket itself.
    below = f"gs://{parts.netloc}/{parts.path.strip('/')}".rstrip("/") + "/**"
    if program == "gcloud":
        return ["gcloud", "storage", "objects", "list", below, "--limit=1", "--format=value(name)"]
    return ["gsutil", "ls", below]


def _remedy(problem: str) -> str:
    flat = problem.lower().replace(" ", "")
    return next((remedy for word, remedy in _REMEDIES if word in flat), "run the client by hand")
