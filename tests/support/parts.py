"""Programs that the tests run for real and that pip does not bring: how they are found and had.

As a program (``python3 tests/support/parts.py fetch``) it unpacks Debian packages into ``.deps/``
of the checkout; nothing is installed, no service is started. With ``CI=true`` as root, what only
works installed (a C compiler) is installed, with service starts forbidden. As a module it finds
what is there: ``require("promtool")`` is its path, or a skip that says what to do; with ``CI=true``
a missing part fails.

It runs on any Python 3.10 without other packages, because it runs before they are there.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPS = ROOT / ".deps"
UNPACKED = DEPS / "root"
WRAPPERS = DEPS / "bin"
CI = os.environ.get("CI") == "true"

PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "gdb": "gdb",
    "cuda-gdb": "nvidia-cuda-gdb",
    "cc": "gcc",
    "chromium": "chromium",
    "etcd": "etcd-server",
    "etcdctl": "etcd-client",
    "curl": "curl",
    "openssl": "openssl",
    "redis-server": "redis-server",
    "fusermount3": "fuse3",
}
"""Program → the Debian package that has it."""

LIBRARIES = {
    "verl": (
        "verl==0.9.1",
        "tensordict==0.15.3",
        "omegaconf==2.4.0",
        "cloudpickle==3.1.3",
        "codetiming==1.4.0",
        "pyvers==0.2.3",
        "orjson==3.13.0",
    ),
    "axe": ("axe-playwright-python==0.1.8",),
}
"""Folder in ``.deps/`` → what pip puts there, without what these want beside it: a stack is had
whole only with the GPUs that it is made for, and its controller does without."""

INSTALLED_ONLY = frozenset({"cc"})
"""Of no use unpacked: their other programs are looked for in fixed places."""


def find(name: str) -> str | None:
    """The path of a program: on PATH, or unpacked here; None where it is neither."""
    for place in (WRAPPERS / name, UNPACKED / "usr/bin" / name, UNPACKED / "bin" / name):
        if place.exists():
            return str(place)
    return shutil.which(name)


def require(name: str) -> str:
    """The path of a program. Skips the test where it is missing; fails with ``CI=true``."""
    path = find(name)
    if path is not None:
        return path
    import pytest

    how = f"{name} is missing: run `make deps`, or `apt-get install {PACKAGES.get(name, name)}`"
    raise pytest.fail.Exception(how) if CI else pytest.skip.Exception(how)


def require_library(name: str) -> str:
    """The folder of one of ``LIBRARIES``, for PYTHONPATH. Skips the test where it is missing; fails
    with ``CI=true``."""
    folder = DEPS / name
    if not folder.is_dir():
        lacking(f"{name} is missing: run `make deps`")
    return str(folder)


def lacking(why: str) -> NoReturn:
    """Skips a test for want of a right or a part of this machine; fails with ``CI=true``."""
    import pytest

    raise pytest.fail.Exception(why) if CI else pytest.skip.Exception(why)


def needs_root() -> pytest.MarkDecorator:
    """Marks tests that only root can do: others skip them; with ``CI=true`` they fail instead."""
    import pytest

    reason = "only root can do that: run the tests with sudo"
    return pytest.mark.skipif(os.geteuid() != 0 and not CI, reason=reason)


def require_module(name: str, package: str = "") -> ModuleType:
    """A Python module that tests need. Skips where it is missing; fails with ``CI=true``."""
    try:
        return importlib.import_module(name)
    except ImportError:
        import pytest

        how = f"{name} is missing: pip install {package or name.partition('.')[0]}"
        raise pytest.fail.Exception(how) if CI else pytest.skip.Exception(how) from None


def fetch() -> int:
    """Get what is missing. What cannot be had is said, and is no error: tests that need it skip."""
    for library in LIBRARIES:
        if not (DEPS / library).is_dir() and not _fetch_library(library):
            print(f"{library}: could not be had; tests that need it will be skipped")
    missing = sorted({PACKAGES[name] for name in PACKAGES if find(name) is None})
    if not missing:
        return 0
    if shutil.which("apt-get") is None:
        print(f"no apt-get here; tests that need {', '.join(missing)} will be skipped")
        return 0
    apt = _private_apt()
    if apt is None or not _run([*apt, "-qq", "update"]):
        print(f"apt has no package lists here; install by hand: {' '.join(missing)}")
        return 0
    for package in missing:
        installed_only = package in {PACKAGES[name] for name in INSTALLED_ONLY}
        if installed_only and not (CI and os.geteuid() == 0):
            print(f"{package}: needed by some tests; apt-get install {package}")
        elif not (_install(apt, package) if installed_only else _unpack(apt, package)):
            print(f"{package}: could not be had; tests that need it will be skipped")
    _write_wrappers()
    return 0


def _fetch_library(name: str) -> bool:
    """Whole or not at all: what is half there would be taken for all of it."""
    own = ROOT / ".venv/bin/python"
    made = DEPS / f"{name}.{os.getpid()}"
    pip = [str(own) if own.exists() else sys.executable, "-m", "pip", "install", "--quiet"]
    if not _run([*pip, "--no-deps", "--target", str(made), *LIBRARIES[name]]):
        shutil.rmtree(made, ignore_errors=True)
        return False
    made.rename(DEPS / name)
    return True


def pip_wheel() -> int:
    """Print the path of a pip wheel: for a Debian Python without ensurepip."""
    apt = _private_apt()
    if apt is None or not _run([*apt, "-qq", "update"]) or not _unpack(apt, "python3-pip-whl"):
        return 1
    wheels = sorted((UNPACKED / "usr/share/python-wheels").glob("pip-*.whl"))
    if wheels:
        print(wheels[-1])
    return 0 if wheels else 1


def _private_apt() -> list[str] | None:
    """apt-get with lists and cache of its own: works for any user, touches nothing of the system's.

    The system's own mirrors are used, with the component non-free added (cuda-gdb is there).
    """
    source = _debian_source()
    if source is None:
        return None
    state, cache = DEPS / "apt/state", DEPS / "apt/cache"
    (state / "lists/partial").mkdir(parents=True, exist_ok=True)
    (cache / "archives/partial").mkdir(parents=True, exist_ok=True)
    sources = DEPS / "apt/sources.list"
    sources.write_text(source)
    options = {
        "Dir::State": state,
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": cache,
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Get::AllowUnauthenticated": "false",
        "APT::Sandbox::User": "",
        "Acquire::Retries": "3",
    }
    return ["apt-get", *(f"-o{key}={value}" for key, value in options.items())]


def _debian_source() -> str | None:
    """One line of sources.list for this Debian's release, from the machine's own configuration."""
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    suite = release.get("VERSION_CODENAME", "").strip('"')
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in files:
        try:
            text = file.read_text()
        except OSError:
            continue
        for stanza in (
            re.split(r"\n\s*\n", text) if file.suffix == ".sources" else text.splitlines()
        ):
            if line := _as_line(stanza, suite):
                return line
    return None


def _as_line(stanza: str, suite: str) -> str | None:
    if "Types:" in stanza:
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.+)$", stanza, re.MULTILINE))
        if suite not in fields.get("Suites", "").split() or "main" not in fields.get(
            "Components", ""
        ):
            return None
        signed = f"[signed-by={fields['Signed-By']}] " if "Signed-By" in fields else ""
        return f"deb {signed}{fields['URIs'].split()[0]} {suite} main contrib non-free\n"
    found = re.match(rf"deb\s+(\[[^]]*\]\s+)?(\S+)\s+{suite}\s+.*\bmain\b", stanza)
    return f"deb {found[1] or ''}{found[2]} {suite} main contrib non-free\n" if found else None


def _unpack(apt: list[str], package: str) -> bool:
    archives = DEPS / "apt/cache/archives"
    for old in archives.glob("*.deb"):
        old.unlink()
    download = ["-qq", "--download-only", "--no-install-recommends", "-oDebug::NoLocking=1", "-y"]
    if not _run([*apt, *download, "install", package]):
        return False
    for deb in sorted(archives.glob("*.deb")):
        if not _run(["dpkg-deb", "-x", str(deb), str(UNPACKED)]):
            return False
    return True


def _install(apt: list[str], package: str) -> bool:
    """Install for real (CI, root), while policy-rc.d forbids every start of a service."""
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        return _run([*apt, "-qq", "-y", "--no-install-recommends", "install", package])
    finally:
        if ours:
            policy.unlink()


def _write_wrappers() -> None:
    """Programs that look for their libraries and data in fixed places are told where they are."""
    WRAPPERS.mkdir(parents=True, exist_ok=True)
    usual = [path for path in (UNPACKED / "usr/lib").glob("*-linux-gnu*") if path.is_dir()]
    beside = [path / "pulseaudio" for path in usual]  # Chromium's own libraries want it
    libraries = ":".join(str(path) for path in (*usual, *beside) if path.is_dir())
    for name in ("gdb", "cuda-gdb", "chromium", "curl", "redis-server"):
        # Debian's /usr/bin/chromium is a script that looks for the browser in a fixed place.
        folder = "usr/lib/chromium" if name == "chromium" else "usr/bin"
        program = UNPACKED / folder / name
        if not program.exists():
            continue
        data = UNPACKED / "usr/share/gdb"
        more = f' --data-directory="{data}"' if name == "gdb" and data.is_dir() else ""
        home = f'PYTHONHOME="{UNPACKED}/usr" ' if (UNPACKED / "usr/lib/python3.11").is_dir() else ""
        wrapper = WRAPPERS / name
        wrapper.write_text(
            "#!/bin/sh\n"
            f'export LD_LIBRARY_PATH="{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
            f'{home}exec "{program}"{more} "$@"\n'
        )
        wrapper.chmod(0o755)


def _run(command: list[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        print(done.stderr.decode("utf-8", "replace")[-800:], file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(pip_wheel() if sys.argv[1:] == ["pip-wheel"] else fetch())
