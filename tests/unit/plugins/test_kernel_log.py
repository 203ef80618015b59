"""The kernel_log collector: every line is counted once, also across restarts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.api import Context, Event, NoData, Skip
from ray_sentinel_plugins import kernel_log
from ray_sentinel_plugins._kernel_log import tally
from ray_sentinel_plugins._nvml.xid_events import log_is_readable
from ray_sentinel_plugins.kernel_log import KernelLogCollector
from tests.support.parts import lacking

Series = dict[str, float]
BOOT = "6b7d2a52-1111-4000-8000-000000000000\n"
OOM = "[ {at}.0] Out of memory: Killed process {pid} (python) total-vm:1kB, anon-rss:1kB\n"
KILLS = 'hw_dmesg_errors_total{kind="oom"}'


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(BOOT)
    (tmp_path / "dev/kmsg").write_text("")
    return tmp_path


def live(root: Path) -> Context:
    """A running host whose log is an ordinary file."""
    return Context(
        proc=root / "proc", sys=root / "sys", dev=root / "dev", state_dir=root / "state", live=True
    )


def append(root: Path, text: str) -> None:
    with (root / "dev/kmsg").open("a") as file:
        file.write(text)


def test_each_line_is_counted_once(host: Path, series: Callable[..., Series]) -> None:
    collector = KernelLogCollector(live(host))
    assert series(collector.collect())[KILLS] == 0
    append(host, OOM.format(at=5, pid=1))
    items = list(collector.collect())
    assert series(items)[KILLS] == 1
    assert [item.kind for item in items if isinstance(item, Event)] == ["kernel.oom"]
    items = list(collector.collect())
    assert series(items)[KILLS] == 1
    assert not [item for item in items if isinstance(item, Event)]


def test_counters_go_on_in_the_next_process(host: Path, series: Callable[..., Series]) -> None:
    append(host, OOM.format(at=5, pid=1))
    list(KernelLogCollector(live(host)).collect())
    append(host, OOM.format(at=6, pid=2))
    items = list(KernelLogCollector(live(host)).collect())
    assert series(items)[KILLS] == 2
    assert len([item for item in items if isinstance(item, Event)]) == 1


def test_they_never_fall_when_the_ring_forgets(host: Path, series: Callable[..., Series]) -> None:
    append(host, OOM.format(at=5, pid=1))
    list(KernelLogCollector(live(host)).collect())
    (host / "dev/kmsg").write_text("")
    assert series(KernelLogCollector(live(host)).collect())[KILLS] == 1


def test_another_boot_starts_anew(host: Path, series: Callable[..., Series]) -> None:
    append(host, OOM.format(at=5, pid=1))
    list(KernelLogCollector(live(host)).collect())
    (host / "proc/sys/kernel/random/boot_id").write_text(BOOT.replace("1111", "2222"))
    (host / "dev/kmsg").write_text("")
    assert series(KernelLogCollector(live(host)).collect())[KILLS] == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot_id": 5}', "\udcff"])
def test_broken_state_is_said(
    host: Path, text: str, series: Callable[..., Series], caplog: pytest.LogCaptureFixture
) -> None:
    append(host, OOM.format(at=5, pid=1))
    (host / "state").mkdir()
    (host / "state" / tally.FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert series(KernelLogCollector(live(host)).collect())[KILLS] == 1
    assert "counted again" in caplog.text


def test_a_state_folder_that_cannot_be_written(
    host: Path, series: Callable[..., Series], caplog: pytest.LogCaptureFixture
) -> None:
    append(host, OOM.format(at=5, pid=1))
    (host / "state").write_text("a file in its place")
    assert series(KernelLogCollector(live(host)).collect())[KILLS] == 1
    assert "cannot be written" in caplog.text


def test_a_flood_is_counted_whole_and_told_in_part(
    host: Path, series: Callable[..., Series], caplog: pytest.LogCaptureFixture
) -> None:
    append(host, "".join(OOM.format(at=number, pid=number) for number in range(2000)))
    items = list(KernelLogCollector(live(host)).collect())
    events = [item for item in items if isinstance(item, Event)]
    assert series(items)[KILLS] == 2000
    assert len(events) == kernel_log.MAX_EVENTS
    assert events[-1].attributes["pid"] == "1999"
    assert "2000 kernel events at once" in caplog.text


def test_hostile_xids_are_bounded(host: Path, series: Callable[..., Series]) -> None:
    lines = (f"[1.0] NVRM: Xid (PCI:0000:{n % 256:02x}:00): {n}, x\n" for n in range(5000))
    append(host, "".join(lines))
    found = series(KernelLogCollector(live(host)).collect())
    assert sum(name.startswith("hw_gpu_xid") for name in found) == tally.MAX_XID_SERIES
    assert found["hw_dmesg_gpu_errors_total"] == 5000


def test_gpus_are_named_by_index_where_it_is_known(
    host: Path, series: Callable[..., Series]
) -> None:
    for pci in ("0000:b3:00.0", "0000:3b:00.0"):
        (host / "proc/driver/nvidia/gpus" / pci).mkdir(parents=True)
    append(
        host, "[1.0] NVRM: Xid (PCI:0000:b3:00): 48, x\n[1.0] NVRM: Xid (PCI:0000:ff:00): 48, x\n"
    )
    collector = KernelLogCollector(live(host))
    found = series(collector.collect())
    assert found['hw_gpu_xid_errors_total{gpu="1",xid="48"}'] == 1
    assert found['hw_gpu_xid_errors_total{gpu="0000:ff:00",xid="48"}'] == 1
    (host / "proc/driver/nvidia/gpus/0000:3b:00.0").rmdir()
    assert series(collector.collect())['hw_gpu_xid_errors_total{gpu="1",xid="48"}'] == 1


def test_a_firmware_report_of_a_gpu_is_the_gpus(host: Path, series: Callable[..., Series]) -> None:
    (host / "proc/driver/nvidia/gpus/0000:b3:00.0").mkdir(parents=True)
    for number, pci in enumerate(("0000:b3:00.0", "0000:00:01.0")):
        start = f"[{number}.0] {{{number}}}[Hardware Error]: "
        append(host, f"{start}event severity: fatal\n{start}  device_id: {pci}\n")
    found = series(KernelLogCollector(live(host)).collect())
    assert found['hw_dmesg_errors_total{kind="gpu"}'] == 1
    assert found['hw_dmesg_errors_total{kind="mce"}'] == 1


def test_times_count_from_the_boot(tmp_path: Path, events_of: Callable[..., list[Event]]) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dmesg").write_text(OOM.format(at=5, pid=1))
    assert events_of(KernelLogCollector, tmp_path)[0].time == 5.0
    (tmp_path / "proc/stat").write_text("cpu 1\nbtime 1700000000\n")
    assert events_of(KernelLogCollector, tmp_path)[0].time == 1700000005.0


def test_no_log_says_what_to_do(tmp_path: Path, context: Callable[..., Context]) -> None:
    with pytest.raises(Skip, match="would be"):
        list(KernelLogCollector(context(tmp_path)).collect())
    with pytest.raises(Skip, match="CAP_SYSLOG"):
        list(KernelLogCollector(live(tmp_path)).collect())


def test_no_permission_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(kernel_log, "KmsgFollower", refuse)
    monkeypatch.setattr(kernel_log, "is_kernel_log", lambda path: True)
    with pytest.raises(Skip, match=r"Operation not permitted.*dmesg_restrict"):
        KernelLogCollector(live(tmp_path))


def test_another_device_in_its_place_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").symlink_to("/dev/null")
    with pytest.raises(Skip, match="kmsg is no kernel log"):
        list(KernelLogCollector(live(tmp_path)).collect())
    assert not log_is_readable(tmp_path / "dev")


def test_garbage_is_no_log(
    tmp_path: Path, context: Callable[..., Context], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_bytes(b"\xff\x00\xfe" * 1000 + b"\n")
    caplog.set_level(logging.WARNING)
    with pytest.raises(NoData, match="not a kernel log"):
        list(KernelLogCollector(context(tmp_path)).collect())


def test_this_machines_log() -> None:
    try:
        collector = KernelLogCollector(Context())
    except Skip as reason:
        lacking(str(reason))
    first = [item.value for item in collector.collect() if not isinstance(item, Event)]
    second = [item.value for item in collector.collect() if not isinstance(item, Event)]
    collector.close()
    assert len(first) >= len(tally.KINDS) + 1
    assert all(after >= before for before, after in zip(first, second, strict=False))


def test_a_firmware_report_of_a_gpu_is_the_gpus_wherever_the_tree_came_from(
    tmp_path: Path,
    context: Callable[[Path], Context],
    events_of: Callable[..., list[Event]],
    series: Callable[..., dict[str, float]],
) -> None:
    """As the kernel's cper.c prints them: a GPU's PCIe error, then a memory error."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dmesg").write_text(REPORTS)
    found = series(KernelLogCollector(context(tmp_path)).collect())
    assert found["hw_dmesg_gpu_errors_total"] == 1
    assert found['hw_dmesg_errors_total{kind="mce"}'] == 1
    gpu, memory = events_of(KernelLogCollector, tmp_path)
    assert (gpu.attributes["pci"], gpu.severity) == ("0000:3b:00", "critical")
    assert (memory.attributes["section"], memory.severity) == ("memory error", "warning")


@pytest.mark.parametrize(
    "place",
    ["dev/kmsg", "dev/dmesg", "proc/kmsg", "dmesg.txt", "var/log/dmesg", "var/log/kern.log"],
)
def test_places_of_a_trees_log(
    tmp_path: Path,
    place: str,
    context: Callable[[Path], Context],
    series: Callable[..., dict[str, float]],
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(REPORTS)
    assert series(KernelLogCollector(context(tmp_path)).collect())["hw_dmesg_gpu_errors_total"] == 1


def test_the_running_kernels_own_log_is_not_eaten(tmp_path: Path) -> None:
    """What is read from /proc/kmsg is gone for others: a /proc that is mounted elsewhere too."""
    (tmp_path / "proc").symlink_to("/proc")
    root = Context(proc=tmp_path / "proc", sys=tmp_path, dev=tmp_path / "dev", live=False)
    with pytest.raises(Skip, match="no kernel log"):
        list(KernelLogCollector(root).collect())


REPORTS = """\
[  100.000001] {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 512
[  100.000002] {1}[Hardware Error]: event severity: fatal
[  100.000003] {1}[Hardware Error]:  Error 0, type: fatal
[  100.000004] {1}[Hardware Error]:   section_type: PCIe error
[  100.000005] {1}[Hardware Error]:   port_type: 0, PCIe end point
[  100.000006] {1}[Hardware Error]:   version: 0.2
[  100.000007] {1}[Hardware Error]:   command: 0x0407, status: 0x0010
[  100.000008] {1}[Hardware Error]:   device_id: 0000:3b:00.0
[  100.000009] {1}[Hardware Error]:   slot: 0
[  100.000010] {1}[Hardware Error]:   secondary_bus: 0x00
[  100.000011] {1}[Hardware Error]:   vendor_id: 0x10de, device_id: 0x2330
[  100.000012] {1}[Hardware Error]:   class_code: 030200
[  200.000001] {2}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4
[  200.000002] {2}[Hardware Error]: It has been corrected by h/w and requires no further action
[  200.000003] {2}[Hardware Error]: event severity: corrected
[  200.000004] {2}[Hardware Error]:  Error 0, type: corrected
[  200.000005] {2}[Hardware Error]:   section_type: memory error
"""
