"""Learned phases on disk."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.actors.coordinator.phase_file import MOST_JOBS, NAME, PhaseFile


def test_what_is_saved_is_loaded_by_the_next_run(tmp_path: Path) -> None:
    PhaseFile(tmp_path).save({"llm": {"graph_capture": (200.0, 540.0)}})
    assert PhaseFile(tmp_path).load() == {"llm": {"graph_capture": (200.0, 540.0)}}
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_other_jobs_stay_and_the_oldest_go(tmp_path: Path) -> None:
    file = PhaseFile(tmp_path)
    for number in range(MOST_JOBS + 3):
        file.save({f"job{number}": {"compile": (1.0,)}})
    kept = PhaseFile(tmp_path).load()
    assert len(kept) == MOST_JOBS
    assert "job0" not in kept
    assert f"job{MOST_JOBS + 2}" in kept


def test_a_damaged_file_is_left_out_and_written_anew(tmp_path: Path) -> None:
    for damage in (b"", b"{", b"[1, 2]", b'{"a": {"b": ["x"]}}', b"\xff\xfe", b"\x00" * 5000):
        (tmp_path / NAME).write_bytes(damage)
        file = PhaseFile(tmp_path)
        assert file.load() == {}
        file.save({"a": {"compile": (3.0,)}})
        assert PhaseFile(tmp_path).load() == {"a": {"compile": (3.0,)}}


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    file = PhaseFile(tmp_path)
    assert file.load() == {}
    file.save({"a": {"compile": (3.0,)}})
    assert NAME in file.problem
    assert PhaseFile(None).load() == {}
    PhaseFile(None).save({"a": {"compile": (3.0,)}})


def test_a_problem_is_over_where_nothing_is_left_to_write(tmp_path: Path) -> None:
    file = PhaseFile(tmp_path)
    file.save({"a": {"compile": (3.0,)}})
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    file.save({"a": {"compile": (4.0,)}})
    assert NAME in file.problem
    file.save({"a": {"compile": (3.0,)}})
    assert file.problem == ""
