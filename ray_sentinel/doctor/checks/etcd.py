"""etcd is healthy, and holds no leftovers of an earlier run of the same name."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

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
from ray_sentinel.doctor.endpoint import meeting_point
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.errors import UnreachableError
from ray_sentinel.http.client import RefusedError, get

SECONDS = 4.0
"""Seconds to wait for one answer."""
MOST_BYTES = 4 << 20
"""Most bytes of one answer: the keys of a run are few and short."""
PREFIXES = ("/torch/elastic", "/torchelastic")
"""Prefixes of the keys of torch's ``etcd_rendezvous_backend`` and ``etcd_rendezvous``, in this
order."""


class EtcdFacts(msgspec.Struct, frozen=True):
    """What etcd answered."""

    url: str
    run_id: str
    healthy: bool = False
    version: str = ""
    v2: bool = False
    """Whether etcd speaks the v2 API, which torch's etcd-v2 backend needs."""
    keys: tuple[str, ...] = ()
    old_keys: tuple[str, ...] = ()
    """The run's keys in the v2 API, which has a store of its own."""
    problem: str = ""


class EtcdCheck(Check[EtcdFacts]):
    """Asks ``/health``, ``/version`` and for keys below torch's prefixes; changes nothing."""

    name = "etcd"
    about = "etcd is healthy, and holds no stale rendezvous"
    facts = EtcdFacts
    everywhere = False

    def look(self, plan: RunPlan, here: Here) -> EtcdFacts | None:
        """Ask it, where the rendezvous is an etcd."""
        point = meeting_point(plan, here.environ)
        if not point.endpoint or not point.is_etcd or point.problem:
            return None
        scheme = "https" if point.endpoint.startswith("https:") else "http"
        host = f"[{point.host}]" if ":" in point.host else point.host
        url = f"{scheme}://{host}:{point.port}"
        try:
            health = _get(f"{url}/health")
        except RefusedError as error:
            # An unhealthy etcd says why in the body, with status 503.
            health = _decoded(error.body) or {"reason": f"HTTP {error.status}"}
        except UnreachableError as error:
            return EtcdFacts(url, point.run_id, problem=str(error))
        version, v2, old_keys = _old_contents(url)
        why = str(health.get("reason", "")) or ("" if health else "what answers is no etcd")
        return EtcdFacts(
            url,
            point.run_id,
            healthy=str(health.get("health")).lower() == "true",
            version=version,
            v2=v2,
            keys=tuple(_new_keys(url)),
            old_keys=tuple(old_keys),
            problem=why,
        )

    def judge(self, case: CheckInput[EtcdFacts]) -> Iterable[CheckResult]:
        """Fails if it does not answer, is unhealthy, or holds keys of an earlier run."""
        if not case.seen:
            yield skipped("the rendezvous is no etcd")
        for facts in case.seen.values():
            yield from _of(facts, case.plan)


def _of(facts: EtcdFacts, plan: RunPlan) -> Iterator[CheckResult]:
    if not facts.healthy:
        yield failure(
            f"etcd at {facts.url} is not healthy: {facts.problem or 'it does not say why'}",
            f"start it, and see that `curl {facts.url}/health` says true",
        )
        return
    keys = [(key, _removal(facts.url, key, "")) for key in facts.keys]
    keys += [(key, _old_removal(facts.url, key)) for key in facts.old_keys]
    stale = [
        *((key, _removal(facts.url, *found)) for key in facts.keys if (found := _run(key, facts))),
        *(
            (key, _old_removal(facts.url, found[0]))
            for key in facts.old_keys
            if (found := _run(key, facts))
        ),
    ]
    if stale:
        yield failure(
            f"etcd holds {_keys_of(stale)} of an earlier run {facts.run_id!r}: {stale[0][0]}",
            f"{stale[0][1]}, or choose a new --rdzv-id for every run",
        )
    elif keys:
        yield warning(
            f"etcd holds {_keys_of(keys)} of other runs, such as {keys[0][0]}",
            f"when they are over: {keys[0][1]}",
        )
    else:
        yield ok(f"etcd {facts.version} at {facts.url} is healthy and holds no rendezvous")
    if not facts.v2 and plan.rdzv_backend == "etcd-v2":
        yield failure(
            f"etcd {facts.version} does not serve the v2 API, which --rdzv-backend=etcd-v2 needs",
            "start etcd (before 3.6) with --enable-v2, or use --rdzv-backend=c10d",
        )


def _run(key: str, facts: EtcdFacts) -> tuple[str, str] | None:
    """(The coming run's path, what follows it) if the key is one of that run's own."""
    words = key.split("/")
    for at, word in enumerate(words):
        if facts.run_id and word in (facts.run_id, f"run_{facts.run_id}"):
            return "/".join(words[: at + 1]), "/".join(words[at + 1 :])
    return None


def _removal(url: str, path: str, below: str) -> str:
    """The command for one key, or for all below a path; a prefix without its ``/`` matches other
    runs, too."""
    what = f"--prefix {shlex.quote(path + '/')}" if below else shlex.quote(path)
    return f"etcdctl --endpoints {url} del {what}"


def _old_removal(url: str, path: str) -> str:
    """The command for a key of the v2 API, which today's ``etcdctl`` does not see."""
    return f"curl -X DELETE {shlex.quote(f'{url}/v2/keys{path}?recursive=true')}"


def _keys_of(found: list[tuple[str, str]]) -> str:
    return "1 key" if len(found) == 1 else f"{len(found)} keys"


def _old_contents(url: str) -> tuple[str, bool, list[str]]:
    """Version, whether the v2 API is served, and its keys below torch's prefixes."""
    try:
        version = str(_get(f"{url}/version").get("etcdserver", ""))
    except UnreachableError:
        version = ""
    keys: list[str] = []
    v2 = False
    for prefix in PREFIXES:
        try:
            keys += _keys(_get(f"{url}/v2/keys{prefix}?recursive=true").get("node", {}))
            v2 = True
        except RefusedError as error:
            # 404 with etcd's own error code means: this server speaks v2, and has no such key.
            v2 = v2 or _decoded(error.body).get("errorCode") == 100
        except UnreachableError:
            pass  # no v2 here; the next API may answer
    return version, v2, sorted(set(keys))


def _new_keys(url: str) -> list[str]:
    """The keys of the v3 API."""
    keys: list[str] = []
    for prefix in PREFIXES:
        try:
            keys += _range(url, prefix + "/")
        except (UnreachableError, ValueError, KeyError):
            pass  # no v3 gateway here; the answer of v2 stands
    return sorted(set(keys))


def _keys(node: Any) -> Iterator[str]:
    if not isinstance(node, dict):
        return
    if "key" in node and not node.get("dir"):
        yield str(node["key"])
    for child in node.get("nodes") or ():
        yield from _keys(child)


def _range(url: str, prefix: str) -> list[str]:
    """Keys only, by the v3 gateway: ``range_end`` is the prefix with its last byte raised."""
    start = prefix.encode()
    end = start[:-1] + bytes([start[-1] + 1])
    question = {
        "key": base64.b64encode(start).decode(),
        "range_end": base64.b64encode(end).decode(),
        "keys_only": True,
        "limit": "1000",
    }
    answer = _get(f"{url}/v3/kv/range", json.dumps(question).encode())
    return [
        base64.b64decode(item["key"]).decode("utf-8", "replace") for item in answer.get("kvs", [])
    ]


def _get(url: str, data: bytes | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    return _decoded(get(url, seconds=SECONDS, most_bytes=MOST_BYTES, data=data, headers=headers))


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
