"""Finding a Ray cluster and connecting to it as a job of our own."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from ray_sentinel.actors import DEPENDENCIES, VENDOR
from ray_sentinel.actors.deployment.environment import forget_identity, runtime_env
from ray_sentinel.actors.names import NAMESPACE
from ray_sentinel.actors.raylets import (
    raylet_address,
    raylets,
    trusted_raylets,
    untrusted_raylets,
)
from ray_sentinel.errors import UnreachableError, unreached
from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.path_walk import READ_FILE
from ray_sentinel.progress.proc.process_memory import memory_file
from ray_sentinel.progress.rank.own_process import raylet_above
from ray_sentinel.text import port_number
from ray_sentinel.trusted_path import are_trusted

# Ray's token authentication: Ray's clients offer a token only where ``RAY_AUTH_MODE`` says so.
#
# ``ray start`` of Ray 2.60 asks for tokens by itself where it finds one, and sets the variable for
# its own processes alone. https://docs.ray.io/en/latest/ray-security/token-auth.html

_MODE = "RAY_AUTH_MODE"


def adopt_mode(
    target: str, environ: MutableMapping[str, str] = os.environ, proc: Path = Path("/proc")
) -> None:
    """Use the token mode of the nodes of ``target`` (host:port) on this machine, if ``environ``
    does not set one.

    Without effect once Ray was imported.
    """
    if _MODE in environ:
        return
    for pid, address in raylets(proc).items():
        if address != target:
            continue
        # Empty if the raylet is another user's, or has just ended.
        told = parse_environ(memory_file(pid, "environ", proc) or b"", "replace")
        if mode := told.get(_MODE, ""):
            environ[_MODE] = mode
            return


def remedy(environ: Mapping[str, str] = os.environ) -> str:
    """What to do if a cluster refuses clients that offer no token, or the wrong one."""
    tokens = "RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"
    if environ.get(_MODE, "").lower() == "token":
        return f"the token in {tokens} must be the cluster's"
    return f"if it asks for a token, set {_MODE}=token, with the cluster's token in {tokens}"


PROBE_SECONDS = 2.0
"""Seconds that a control store has to accept a connection; after that it counts as absent.
``ray.init`` would take a minute to say so."""

RAYLET_SECONDS = 5.0
"""Seconds that a node which is being started has to get its raylet."""

CURRENT = "ray_current_cluster"
"""The file in Ray's temp dir with the address of the cluster that was started last."""
MOST_ADDRESS = 1 << 10

_USES_TLS = "RAY_USE_TLS"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The first bytes of an HTTP/2 client: the preface and an empty SETTINGS frame."""
_SETTINGS = b"\4"

CLIENT_STARTS = 3
"""Most attempts to connect by Ray Client while its server cannot be started."""
CLIENT_NOT_STARTED = "Starting Ray client server failed"
"""What Ray's client server says when it cannot start the process that serves a client, which
happens now and then (a fork beside gRPC's threads, ray-project/ray#63202)."""

_REMEDY = "start one with `ray start --head`, or name it with --address or RAY_ADDRESS"


def candidates(
    address: str = "",
    environ: Mapping[str, str] = os.environ,
    proc: Path = Path("/proc"),
    temp: Path = Path("/tmp/ray"),
) -> list[tuple[str, str]]:
    """(address, where it was found) of clusters to try, best first.

    A named cluster excludes all others: connecting to a different one would be wrong. One that is
    not named counts only if it is of a user whom we trust, because its control store can run any
    code as ours.
    """
    if address and address != "auto":
        return [(address, "as asked for")]
    named = environ.get("RAY_ADDRESS", "")
    # It may contain the dashboard's address, for `ray job submit`, which names no cluster.
    if named and named != "auto" and not named.startswith("http"):
        return [(named, "RAY_ADDRESS")]
    found = []
    if ancestor := address_of_ancestor(os.getpid(), proc):
        found.append((ancestor, "the Ray node that this process was started by"))
    if text := current_cluster(temp):
        found.append((text, str(temp / CURRENT)))
    found.extend((other, "a raylet on this machine") for other in addresses_of_raylets(proc))
    return [pair for index, pair in enumerate(found) if pair[0] not in dict(found[:index])]


def address_of_ancestor(pid: int, proc: Path = Path("/proc")) -> str:
    """Address of the cluster whose raylet is an ancestor of ``pid``; empty if there is none."""
    raylet = raylet_above(pid, proc)
    return raylet_address(proc / str(raylet)) if raylet else ""


def current_cluster(temp: Path) -> str:
    """The address that Ray left in its temp dir when a cluster was started; empty where it did not,
    or somebody else did: Ray lets all users write there."""
    try:
        handle = os.open(temp / CURRENT, READ_FILE)
    except OSError:
        return ""
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or not are_trusted([info.st_uid]):
            return ""
        return file.read(MOST_ADDRESS).decode("utf-8", "replace").strip()


def addresses_of_raylets(proc: Path = Path("/proc")) -> list[str]:
    """Addresses of the clusters that have a node on this machine, by a user whom we trust."""
    return sorted(set(filter(None, trusted_raylets(proc).values())))


def answers(address: str, seconds: float = PROBE_SECONDS) -> str:
    """Empty if a gRPC server answers at ``host:port`` or ``ray://host:port``, otherwise why it does
    not.

    Both Ray's control store and its client port are gRPC, and such a server begins with a SETTINGS
    frame (RFC 9113, 3.4); ``ray.init`` would wait for minutes for a server that only accepts
    connections.
    """
    host, _, digits = address.removeprefix("ray://").rpartition(":")
    port = port_number(digits)
    if "://" in host or not host or port is None:
        return "this is no address: HOST:PORT or ray://HOST:PORT is"
    try:
        with socket.create_connection((host.strip("[]"), port), timeout=seconds) as found:
            if _USES_TLS not in os.environ:
                found.sendall(_PREFACE)
                if found.recv(9)[3:4] != _SETTINGS:
                    return "something answers there, but it is not Ray"
    except TimeoutError:
        return f"nothing answered within {seconds:.0f} s"
    except (OSError, UnicodeError) as error:
        return unreached(error)
    return ""


# The package as ``py_modules``, so that every node runs the deployer's version of it.
#
# Ray uploads each folder once (by content), unpacks it on the nodes and puts it on ``PYTHONPATH``,
# which measured 0.1 s. The distribution's metadata is shipped as one more folder: without it the
# entry points, by which collectors and exporters are found, would be missing.

PACKAGES = ("ray_sentinel", "ray_sentinel_plugins", "ray_sentinel_exporters")
EXCLUDES = ["__pycache__/", "*.pyc"]

_METADATA = ("METADATA", "entry_points.txt")


def py_modules(staging: Path) -> list[str]:
    """Folders to ship; ``staging`` is an empty folder that outlives the upload."""
    folders = [folder for name in PACKAGES if (folder := _package_folder(name)) is not None]
    staged = [_stage_metadata(staging), _stage_dependencies(staging)]
    return [str(folder) for folder in (*folders, *staged) if folder is not None]


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _stage_metadata(staging: Path) -> Path | None:
    try:
        ours = distribution("ray-sentinel")
    except PackageNotFoundError:
        # Run from a source tree: the deployer itself sees no entry points either.
        return None
    folder = staging / f"ray_sentinel-{ours.version}.dist-info"
    folder.mkdir()
    for name in _METADATA:
        # RECORD and direct_url.json stay behind: they name paths of this machine.
        if text := ours.read_text(name):
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def _stage_dependencies(staging: Path) -> Path | None:
    vendor = staging / VENDOR
    vendor.mkdir()
    for name in DEPENDENCIES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        if spec.submodule_search_locations:
            source = Path(next(iter(spec.submodule_search_locations)))
            shutil.copytree(source, vendor / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(spec.origin, vendor / Path(spec.origin).name)
    return vendor


@contextmanager
def connect(address: str = "", *, ship: bool = False) -> Iterator[Any]:
    """Connect this process (a command or a helper, never a user's) and yield the ``ray`` module.

    With ``ship`` the package is uploaded to the nodes, for what this job creates. Raises
    UnreachableError that says what was tried.
    """
    forget_identity()
    os.environ.pop("RAY_JOB_CONFIG_JSON_ENV_VAR", None)
    target = _reachable(address)
    await_raylet(target)
    adopt_mode(target)
    try:
        import ray
    except ImportError as error:
        raise UnreachableError(f"Ray cannot be imported here ({error}): pip install ray") from None
    staging = Path(mkdtemp(prefix="ray_sentinel-ship-")) if ship else None
    environment = runtime_env(py_modules(staging), EXCLUDES) if staging is not None else None
    try:
        join(ray, target, environment)
        try:
            yield ray
        finally:
            ray.shutdown()
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _reachable(address: str) -> str:
    tried = []
    for target, where in candidates(address):
        problem = answers(target)
        if not problem:
            return target
        tried.append(f"{target} ({where}): {problem}")
    story = "; ".join([*tried, *(untrusted_raylets() if not address else [])]) or (
        "RAY_ADDRESS is not set, /tmp/ray/ray_current_cluster is not there, "
        "and no raylet runs on this machine"
    )
    raise UnreachableError(f"no Ray cluster answers; tried: {story}. Remedy: {_REMEDY}")


def await_raylet(target: str) -> None:
    """Raises UnreachableError if no Ray node is on this machine: a process joins a cluster through
    its raylet, and ``ray.init`` would wait for one for a minute."""
    if target.startswith("ray://"):
        return
    deadline = time.monotonic() + RAYLET_SECONDS
    # A raylet of any cluster suffices: a store's address has many names and may be translated on
    # the way.
    while not raylets():
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"the Ray cluster at {target} answers, but no raylet runs on this machine: "
                "run the command on a node of the cluster. Where its control store was started "
                "anew without its state, Ray has ended its nodes: start them anew, with `ray stop` "
                "and `ray start --head`"
            )
        time.sleep(0.2)


def join(ray: Any, target: str, environment: dict[str, Any] | None) -> None:
    """Connect to ``target``, again if Ray Client's server did not start. Raises
    UnreachableError."""
    for _ in range(CLIENT_STARTS):
        try:
            return _init_once(ray, target, environment)
        except UnreachableError as error:
            if CLIENT_NOT_STARTED not in str(error.__cause__):
                raise
            failed = error
    raise failed


def silence_ray() -> None:
    """Stop Ray from printing on our standard output: it reports dead nodes there, even without
    ``log_to_driver``, in the middle of what a command prints for programs."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = _print_nothing


def _print_nothing(*_: object, **__: object) -> None:
    """A replacement for ``ray._private.worker.print_to_stdstream`` that prints nothing."""


def _init_once(ray: Any, target: str, environment: dict[str, Any] | None) -> None:
    from ray.exceptions import RayError

    # Ray logs its uploads and its greeting to the terminal otherwise.
    logging.getLogger("ray").setLevel(logging.ERROR)
    silence_ray()
    try:
        ray.init(
            address=target,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
            runtime_env=environment,
        )
    except (RayError, RuntimeError, ValueError, OSError) as error:
        # The version check is a RuntimeError.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        story = f"the Ray cluster at {target} was found but cannot be joined: {lines[0]}"
        if type(error) is ConnectionError:
            # If no token was offered, or a wrong one, Ray says only that it failed.
            story += f"; {remedy()}"
        raise UnreachableError(story) from error
