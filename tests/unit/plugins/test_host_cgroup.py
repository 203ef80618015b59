"""The host collector's cgroups: where their files lie, and what they tell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.api import Context
from ray_sentinel_plugins._files import Files
from ray_sentinel_plugins._host import cgroup
from ray_sentinel_plugins.host import HostCollector
from tests.support.files import write

LOG = logging.getLogger("test")
Series = dict[str, float]

MOUNT = "30 23 0:26 {root} {point} rw,relatime shared:9 - {kind} {kind} {options}\n"
V2 = {"memory.current": "1000\n", "memory.max": "5000\n", "memory.events": "oom 3\noom_kill 2\n"}
V1 = {
    "memory.usage_in_bytes": "1000\n",
    "memory.limit_in_bytes": "5000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}
FOUND = {
    "hw_cgroup_mem_used_bytes": 1000,
    "hw_cgroup_mem_limit_bytes": 5000,
    "hw_cgroup_oom_kills_total": 2,
}
ID = "docker/0123456789abcdef"

# name → (own cgroup, mounts as (root, point, kind, options), where its files lie)
LAYOUTS = {
    "v2, a service on a host": (
        "0::/system.slice/ray.service\n",
        [("/", "/sys/fs/cgroup", "cgroup2", "rw,nsdelegate")],
        "fs/cgroup/system.slice/ray.service",
    ),
    "v2, a container with a namespace": (
        "0::/\n",
        [("/", "/sys/fs/cgroup", "cgroup2", "rw")],
        "fs/cgroup",
    ),
    "v2, a container without one": (
        f"0::/{ID}/job\n",
        [(f"/{ID}", "/sys/fs/cgroup", "cgroup2", "rw")],
        "fs/cgroup/job",
    ),
    "v2, no mountinfo": ("0::/job\n", [], "fs/cgroup/job"),
    "v1, docker without a namespace": (
        f"5:cpu,cpuacct:/{ID}\n4:memory:/{ID}\n",
        [(f"/{ID}", "/sys/fs/cgroup/memory", "cgroup", "rw,memory")],
        "fs/cgroup/memory",
    ),
    "v1, on a host": (
        "4:memory:/slurm/uid_1000/job_7\n",
        [
            ("/", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu"),
            ("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"),
        ],
        "fs/cgroup/memory/slurm/uid_1000/job_7",
    ),
    "hybrid, memory in v1": (
        "4:memory:/job\n0::/other\n",
        [
            ("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"),
            ("/", "/sys/fs/cgroup/unified", "cgroup2", "rw"),
        ],
        "fs/cgroup/memory/job",
    ),
    "hybrid, memory in v2": (
        "4:pids:/job\n1:name=systemd:/job\n0::/job\n",
        [("/", "/sys/fs/cgroup/unified", "cgroup2", "rw")],
        "fs/cgroup/unified/job",
    ),
    "v1, no mountinfo": ("4:memory:/job\n", [], "fs/cgroup/memory/job"),
    "v2, a container without one, no mountinfo": (f"0::/{ID}\n", [], "fs/cgroup"),
    "v1, a container without one, no mountinfo": (f"4:memory:/{ID}\n", [], "fs/cgroup/memory"),
    "a blank in the path": (
        "0::/my job\n",
        [("/", "/sys/fs/cgroup", "cgroup2", "rw")],
        "fs/cgroup/my job",
    ),
}


@pytest.fixture
def cgroup_tree(tmp_path: Path) -> Callable[..., Series]:
    def read(
        own: str, mounted: list[tuple[str, str, str, str]], where: str, **changed: str
    ) -> Series:
        write(tmp_path / "proc/self/cgroup", own)
        fields = ("root", "point", "kind", "options")
        lines = [MOUNT.format(**dict(zip(fields, mount, strict=True))) for mount in mounted]
        if lines:
            write(tmp_path / "proc/self/mountinfo", "".join(lines))
        if own.startswith("0::") and "unified" not in where:
            write(tmp_path / "sys/fs/cgroup/cgroup.controllers", "memory\n")
        contents = V1 if "cgroup/memory" in where else V2
        for name, text in {**contents, **changed}.items():
            write(tmp_path / "sys" / where / name, text)
        samples = cgroup.read(Files(LOG, live=False), tmp_path / "proc", tmp_path / "sys")
        return {sample.name: sample.value for sample in samples}

    return read


@pytest.mark.parametrize("name", LAYOUTS)
def test_cgroup_layouts(name: str, cgroup_tree: Callable[..., Series]) -> None:
    assert cgroup_tree(*LAYOUTS[name]) == FOUND


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("v2, a container with a namespace", "memory.max", "max\n"),
        ("v1, on a host", "memory.limit_in_bytes", "9223372036854771712\n"),
        ("v1, on a host", "memory.limit_in_bytes", "9223372036854710272\n"),
    ],
)
def test_no_limit_is_absent(
    name: str, file: str, text: str, cgroup_tree: Callable[..., Series]
) -> None:
    found = cgroup_tree(*LAYOUTS[name], **{file: text})
    assert found.keys() == FOUND.keys() - {"hw_cgroup_mem_limit_bytes"}


@pytest.mark.parametrize(
    ("own", "mount", "limit", "none", "job"),
    [
        ("0::/slurmstepd.scope/job_7/step_0/user/task_0\n", "fs/cgroup", "memory.max", "max\n",
         "slurmstepd.scope/job_7"),
        ("4:memory:/slurm/uid_1000/job_7/step_0/task_0\n", "fs/cgroup/memory",
         "memory.limit_in_bytes", "9223372036854771712\n", "slurm/uid_1000/job_7"),
    ],
    ids=["v2", "v1"],
)  # fmt: skip
def test_the_limit_of_a_cgroup_above_counts_with_what_it_uses(
    own: str, mount: str, limit: str, none: str, job: str, cgroup_tree: Callable[..., Series],
    tmp_path: Path,
) -> None:  # fmt: skip
    of_job = V1 if mount.endswith("memory") else V2
    for name, text in of_job.items():
        write(tmp_path / "sys" / mount / job / name, text)
    write(tmp_path / "sys" / mount / limit, none)
    used = "memory.current" if of_job is V2 else "memory.usage_in_bytes"
    kind = ("cgroup2", "rw") if of_job is V2 else ("cgroup", "rw,memory")
    path = own.strip().rpartition(":")[2].lstrip("/")
    mounted = [("/", f"/sys/{mount}", *kind)]
    assert cgroup_tree(own, mounted, f"{mount}/{path}", **{limit: none, used: "7\n"}) == FOUND


def test_a_cgroup_outside_the_namespace_is_not_guessed(cgroup_tree: Callable[..., Series]) -> None:
    mounted = [("/", "/sys/fs/cgroup", "cgroup2", "rw")]
    assert cgroup_tree("0::/../other\n", mounted, "fs/cgroup") == {}


def test_a_containers_tree_without_its_membership(
    tmp_path: Path, context: Callable[[Path], Context], series: Callable[..., dict[str, float]]
) -> None:
    top = tmp_path / "sys/fs/cgroup"
    top.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    for name, value in (("current", "500"), ("max", "1000"), ("events", "oom_kill 2")):
        (top / f"memory.{name}").write_text(f"{value}\n")
    assert series(HostCollector(context(tmp_path)).collect()) == {
        "hw_cgroup_mem_used_bytes": 500,
        "hw_cgroup_mem_limit_bytes": 1000,
        "hw_cgroup_oom_kills_total": 2,
    }


@pytest.mark.parametrize("path", ["/" + "x" * 5000, "/a\0b"], ids=["too long", "null byte"])
@pytest.mark.parametrize("mounted", [True, False])
def test_a_path_that_no_file_can_have(
    path: str, mounted: bool, cgroup_tree: Callable[..., Series], tmp_path: Path
) -> None:
    mounts = [("/", "/sys/fs/cgroup", "cgroup2", "rw")] if mounted else []
    found = cgroup_tree(f"0::{path}\n", mounts, "fs/cgroup")
    # Without the table of mounts a path that is not there lies above the root of the mount.
    assert found == ({} if mounted else FOUND)
