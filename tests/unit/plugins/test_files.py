"""Reading of files by the plugins: cut numbers, captured trees, FIFOs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from ray_sentinel_plugins import _files
from ray_sentinel_plugins._files import MAX_LABEL, MAX_SAID, Files, clean, decimal
from tests.support.files import write

LOG = logging.getLogger("test")


def test_a_number_that_was_cut_is_no_number(tmp_path: Path) -> None:
    write(tmp_path / "sys/whole", "5\n")
    cut = write(tmp_path / "sys/cut", "12345")
    assert Files(LOG, live=False).count(cut) is None


def test_a_tree_stored_without_newlines_is_read(tmp_path: Path) -> None:
    write(tmp_path / "sys/other", "5")
    assert Files(LOG, live=False).count(write(tmp_path / "sys/plain", "12345")) == 12345


def test_the_running_kernel_cuts_nothing(tmp_path: Path) -> None:
    write(tmp_path / "sys/whole", "5\n")
    assert Files(LOG, live=True).count(write(tmp_path / "sys/bare", "12345")) == 12345


def test_of_several_lines_the_cut_one_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "other", "5\n")
    path = write(tmp_path / "vmstat", "oom_kill 1\npgfault 12")
    assert Files(LOG, live=False).text(path) == "oom_kill 1\n"


def test_newlines_are_looked_for_in_the_roots_too(tmp_path: Path) -> None:
    write(tmp_path / "proc/deep/down/file", "5\n")
    path = write(tmp_path / "sys/alone/cut", "123")
    assert Files(LOG, live=False, roots=(tmp_path / "proc",)).count(path) is None


def test_a_running_kernels_files_are_left_alone(tmp_path: Path) -> None:
    """With ``--sys DIR`` alone, /proc is this kernel's, and what is read of /proc/kmsg is lost."""
    cut = write(tmp_path / "cut", "123")
    opened: list[str] = []
    real = _files.read_file

    def read(path: Path, limit: int) -> bytes:
        opened.append(str(path))
        return real(path, limit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_files, "read_file", read)
        assert Files(LOG, live=False, roots=(Path("/proc"), Path("/sys"))).count(cut) == 123
    assert opened == [str(cut)]


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert Files(LOG).line(path) is None


def test_a_device_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    assert Files(LOG).text(Path("/dev/zero")) is None
    assert "is a device" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "\n", "x\n", "-1\n", "1_0\n", "٣\n", "1 2\n", "9" * 41 + "\n"]
)
def test_what_is_no_count(tmp_path: Path, text: str) -> None:
    assert Files(LOG).count(write(tmp_path / "file", text)) is None


@pytest.mark.parametrize("number", [0, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_large_counts_survive(tmp_path: Path, number: int) -> None:
    assert Files(LOG).count(write(tmp_path / "file", f"{number}\n")) == number


def test_complaints_are_made_once_and_bounded(caplog: pytest.LogCaptureFixture) -> None:
    files = Files(LOG)
    for _ in range(3):
        files.complain("a", "is bad")
    assert len(caplog.records) == 1
    for number in range(2 * MAX_SAID):
        files.complain(f"file {number}", "is bad")
    assert len(caplog.records) == MAX_SAID + 1


def test_missing_is_silent_unless_it_was_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(LOG)
    assert files.text(tmp_path / "none") is None
    assert not caplog.records
    assert files.text(tmp_path / "none", expected=True) is None
    assert "none: cannot be read" in caplog.text


def test_names_are_in_natural_order(tmp_path: Path) -> None:
    for name in ("card10", "card2", "card1-DP-1", "x"):
        (tmp_path / name).touch()
    assert Files(LOG).names(tmp_path) == ["card1-DP-1", "card2", "card10", "x"]


def test_hostile_labels_become_plain() -> None:
    assert clean('eth0\n"x"\t\\') == 'eth0�"x"�\\'
    assert clean(os.fsdecode(b"eth\xff0")) == "eth�0"
    assert len(clean("x" * 10_000)) == MAX_LABEL


@pytest.mark.parametrize("text", ["nan", "inf", "1e5", "", "1.", ".5", "٣.0", "1.5.2"])
def test_what_is_no_decimal(text: str) -> None:
    assert decimal(text) is None


def test_a_crowd_is_cut_and_said(caplog: pytest.LogCaptureFixture) -> None:
    assert len(Files(LOG).bounded(range(10_000), 256, "devices")) == 256
    assert "more than 256" in caplog.text


def test_what_may_not_be_looked_up_is_missing_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    files = Files(LOG)
    assert files.is_folder(tmp_path)
    assert not files.is_file(tmp_path)
    monkeypatch.setattr(Path, "stat", refuse)
    assert not files.is_folder(tmp_path)
    assert f"{tmp_path}: cannot be looked up: Permission denied" in caplog.text


def test_a_name_with_a_null_byte_is_no_file(tmp_path: Path) -> None:
    files = Files(LOG)
    assert not files.is_folder(tmp_path / "a\0b")
    assert files.raw(tmp_path / "a\0b") is None
