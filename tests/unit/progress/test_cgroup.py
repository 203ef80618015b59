"""The cgroup of a process, and whether it is frozen."""

from pathlib import Path

import pytest

from ray_sentinel.kernel_files import parse_cgroup
from ray_sentinel.progress.proc.cgroup import ControlGroups, cgroup_mounts, is_frozen


def test_parse_cgroup():
    text = "9:name=systemd:/\n6:freezer:/jobs/1 (deleted)\n2:cpu,cpuacct:/x:y\n0::/a\nrubbish\n"
    assert parse_cgroup(text) == {
        "name=systemd": "/",
        "freezer": "/jobs/1",
        "cpu": "/x:y",
        "cpuacct": "/x:y",
        "": "/a",
    }


def test_where_control_groups_are_mounted():
    text = (
        "31 24 0:27 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer\n"
        "32 24 0:28 / /sys/fs/cgroup/cpu rw,relatime shared:10 - cgroup cgroup rw,cpu\n"
        "33 24 0:29 / /sys/fs/cgroup/unified rw,relatime shared:11 - cgroup2 cgroup2 rw\nshort\n"
    )
    assert cgroup_mounts(text) == {
        "freezer": "/sys/fs/cgroup/freezer",
        "": "/sys/fs/cgroup/unified",
    }


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir()
    (tmp_path / "proc/self/mountinfo").write_text(
        "31 24 0:27 / /cg/freezer rw shared:9 - cgroup cgroup rw,freezer\n"
        "32 24 0:28 / /cg/two rw shared:10 - cgroup2 cgroup2 rw\n"
    )
    (tmp_path / "proc/7/cgroup").write_text("6:freezer:/job\n0::/job\n")
    (tmp_path / "cg/freezer/job").mkdir(parents=True)
    (tmp_path / "cg/two/job").mkdir(parents=True)
    (tmp_path / "cg/freezer/job/freezer.state").write_text("THAWED\n")
    (tmp_path / "cg/two/job/cgroup.events").write_text("populated 1\nfrozen 0\n")
    return tmp_path


def test_thawed(machine):
    assert not is_frozen(ControlGroups("freezer", machine / "proc", machine), 7)


def test_frozen_by_version_1(machine):
    (machine / "cg/freezer/job/freezer.state").write_text("FROZEN\n")
    assert is_frozen(ControlGroups("freezer", machine / "proc", machine), 7)


def test_frozen_by_version_2(machine):
    (machine / "cg/two/job/cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert is_frozen(ControlGroups("freezer", machine / "proc", machine), 7)


def test_a_group_outside_our_namespace_is_not_looked_for(machine):
    (machine / "proc/7/cgroup").write_text("0::/../../job\n")
    (machine / "cg/two/job/cgroup.events").write_text("frozen 1\n")
    assert not is_frozen(ControlGroups("freezer", machine / "proc", machine), 7)


def test_nothing_to_read(tmp_path):
    groups = ControlGroups("freezer", tmp_path, tmp_path)
    assert not is_frozen(groups, 7)
    assert is_frozen(groups, 7, "do_freezer_trap")


def test_groups_up_to_what_is_to_be_seen(machine):
    (machine / "proc/8").mkdir()
    (machine / "proc/8/cgroup").write_text("6:freezer:/job/step\n0::/docker/abc/job\n")
    (machine / "cg/freezer/job/step").mkdir()
    found = list(ControlGroups("freezer", machine / "proc", machine).up(8))
    freezer, two = machine / "cg/freezer", machine / "cg/two"
    assert found == [freezer / "job/step", freezer / "job", freezer, two]
