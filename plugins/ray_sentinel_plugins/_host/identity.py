"""What the machine runs: kernel, GPU drivers, distribution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.api import Metric, Sample
from ray_sentinel_plugins._files import Files, clean

INFO = Metric(
    "hw_host_info",
    "gauge",
    "Kernel release, versions of the GPU drivers, and the distribution; empty where unknown.",
    ("kernel", "amdgpu", "nvidia", "os"),
)
METRICS = (INFO,)
VERSION = r"\d+\.\d[\w.+~:-]{0,100}"
OS_RELEASE = (Path("/etc/os-release"), Path("/usr/lib/os-release"))


def read(files: Files, proc: Path, sys: Path) -> Iterator[Sample]:
    """One sample. The distribution is no part of /proc or /sys: it is known only on a live host."""
    kernel = kernel_release(files, proc)
    if kernel is None and (line := files.line(path := proc / "version")):
        kernel = files.sound(path, parse_version(line))
    amdgpu = amdgpu_version(files, sys)
    nvidia = nvidia_version(files, proc, sys)
    names = (kernel, amdgpu, nvidia, _distribution(files) if files.live else None)
    if any(names):
        yield INFO(1, *(clean(name or "") for name in names))


def kernel_release(files: Files, proc: Path) -> str | None:
    """What ``uname -r`` prints."""
    return files.word(proc / "sys/kernel/osrelease", VERSION)


def amdgpu_version(files: Files, sys: Path) -> str | None:
    """The version of AMD's own driver; the kernel's has none."""
    return files.word(sys / "module/amdgpu/version", VERSION)


def nvidia_version(files: Files, proc: Path, sys: Path) -> str | None:
    """The version of NVIDIA's driver."""
    version = files.word(sys / "module/nvidia/version", VERSION)
    if version is None and (line := files.line(path := proc / "driver/nvidia/version")):
        version = files.sound(path, parse_nvrm(line))
    return version


def _distribution(files: Files) -> str | None:
    for path in OS_RELEASE:
        if text := files.text(path):
            return parse_os_release(text)
    return None


def parse_version(line: str) -> str | None:
    """The release in ``/proc/version``: ``Linux version 6.1.0-13-amd64 (debian...``."""
    found = re.match(r"Linux version (\S+)", line)
    return found.group(1) if found else None


def parse_nvrm(line: str) -> str | None:
    """The version in the first line of ``/proc/driver/nvidia/version``.

    >>> parse_nvrm("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release")
    '570.158.01'
    """
    found = re.search(r"\b(\d{3}\.\d+(\.\d+)?)\b", line)
    return found.group(1) if found else None


def parse_os_release(text: str) -> str | None:
    """``PRETTY_NAME`` of os-release (``man 5 os-release``), without its quotes."""
    found = re.search(r"^PRETTY_NAME=(.*)", text, re.MULTILINE)
    if found is None:
        return None
    name = str(found.group(1)).rstrip()
    quoted = len(name) > 1 and name[0] in "\"'" and name[-1] == name[0]
    return name[1:-1] if quoted else name
