"""``ray-sentinel explain flight-recorder``: which files are dumps, what is printed, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.cli.recorder_files import find
from ray_sentinel.errors import InputError
from tests.support.recorder_fleet.clock import Clockwork, Fault
from tests.support.recorder_fleet.shape import Axes, build
from tests.support.recorder_fleet.write import HANDS, Hand, encode, one
from tests.support.recorder_sim.dumps import FORMATS, NCCL, write
from tests.support.recorder_sim.faults import simulate


@pytest.fixture(scope="module")
def hang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps _dump_0 ... of a hang that rank 3 or another makes, with a log beside them."""
    folder = tmp_path_factory.mktemp("hang")
    case = simulate("tp2dp4", "stop between", 2)
    for rank, data in write(case.machine, NCCL).items():
        (folder / f"_dump_{rank}").write_bytes(data)
    (folder / "job.log").write_text("step 7\n")
    (folder / "culprit").write_text(str(next(iter(case.culprits))))
    return folder


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = main(["explain", "flight-recorder", *args])
    return code, capsys.readouterr().out


def test_json_names_the_culprit(hang: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, str(hang), "--json")
    found = json.loads(out)
    assert code == 1
    assert found["culprit_ranks"] == [int((hang / "culprit").read_text())]
    assert found["kind"] == "not-enqueued"
    assert 0 < found["confidence"] <= 1
    assert found["evidence"]
    assert {wait["rank"] for wait in found["waits"]} == set(range(8)) - set(found["culprit_ranks"])
    assert any("job.log" in line for line in found["ignored"])


def test_people_are_told_the_same(hang: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, str(hang))
    assert code == 1
    assert f"rank {(hang / 'culprit').read_text()}" in out
    assert "The others wait:" in out


def test_one_dump_is_not_called_dumps(hang: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = min(path for path in hang.iterdir() if path.name != "culprit")
    _, out = run(capsys, str(one))
    assert "1 dump read" in out


def test_nothing_pending_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    style = FORMATS["2.10 json"]
    for rank, data in write(simulate("dp8", "outside", 0).machine, style).items():
        (tmp_path / f"fr{rank}.json").write_bytes(data)
    code, out = run(capsys, str(tmp_path), "--json")
    assert code == 0
    assert json.loads(out)["culprit_ranks"] == []


def test_bad_input_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, str(tmp_path / "nowhere"))[0] == 2
    assert run(capsys, str(tmp_path))[0] == 2
    (tmp_path / "_dump_0").write_bytes(b"garbage")
    code, out = run(capsys, str(tmp_path), "--json")
    assert code == 2
    assert "_dump_0" in json.loads(out)["error"]


def test_a_corrupt_dump_is_a_problem_beside_the_answer(
    hang: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    innocent = next(r for r in range(8) if str(r) != (hang / "culprit").read_text())
    for path in hang.glob("_dump_*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / f"_dump_{innocent}").write_bytes(b"\x80\x02}q")
    found = json.loads(run(capsys, str(tmp_path), "--json")[1])
    assert found["culprit_ranks"] == [int((hang / "culprit").read_text())]
    assert f"_dump_{innocent}" in found["problems"][0]


def test_single_files_and_suffixes(tmp_path: Path) -> None:
    paths = [tmp_path / f"trace_{rank}.pickle" for rank in range(3)]
    for path in paths:
        path.write_bytes(b"")
    assert list(find([str(path) for path in paths]).paths) == [0, 1, 2]


def test_the_largest_set_wins_over_strays(tmp_path: Path) -> None:
    for name in ("_dump_0", "_dump_1", "config2.json", "_dump_1.json", "notes"):
        (tmp_path / name).write_bytes(b"")
    files = find([str(tmp_path)])
    assert {rank: path.name for rank, path in files.paths.items()} == {0: "_dump_0", 1: "_dump_1"}
    assert len(files.ignored) == 3


def test_nodes_folders_are_merged_and_two_sets_are_refused(tmp_path: Path) -> None:
    for node in range(2):
        (tmp_path / f"node{node}").mkdir()
        for local in range(2):
            (tmp_path / f"node{node}" / f"fr_{2 * node + local}").write_bytes(b"")
    assert list(find([str(tmp_path)]).paths) == [0, 1, 2, 3]
    (tmp_path / "node1" / "fr_0").write_bytes(b"")
    with pytest.raises(InputError, match="rank 0 is there twice"):
        find([str(tmp_path)])


def test_the_prefix_can_be_given(tmp_path: Path) -> None:
    for name in ("a_0", "a_1", "b_0", "b_1", "b_2"):
        (tmp_path / name).write_bytes(b"")
    assert len(find([str(tmp_path)]).paths) == 3
    assert len(find([str(tmp_path)], "a_").paths) == 2


def test_a_number_too_large_for_a_rank_is_no_dump(tmp_path: Path) -> None:
    for name in ("fr_0", "fr_1", "fr_20240131"):
        (tmp_path / name).write_bytes(b"")
    assert find([str(tmp_path)]).world_size == 2


def test_dumps_of_two_libraries_in_one_folder_are_read_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 2 stands still for NCCL, but waits in gloo for rank 5, which stands still in both."""
    shape = build(Axes(dp=8))
    nccl = Clockwork(shape, [Fault(2, "host", 9), Fault(5, "host", 9)], 1)
    gloo = Clockwork(shape, [Fault(5, "host", 6)], 2)
    for rank in range(8):
        now = (one(nccl, rank, HANDS["2.9"], 99.0), one(gloo, rank, Hand(library="gloo"), 99.0))
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(encode(now[0], HANDS["2.9"]))
        (tmp_path / f"gloo_trace_rank_{rank}").write_bytes(encode(now[1], HANDS["2.9"]))
    code, out = run(capsys, str(tmp_path), "--json")
    assert json.loads(out)["culprit_ranks"] == [5]
    assert code == 1


def test_empty_marks_of_a_script_are_not_taken_for_the_dumps(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"at_{rank}").touch()
        (tmp_path / f"trace_{rank}.json").write_bytes(b"{}")
    assert {path.name[:6] for path in find([str(tmp_path)]).paths.values()} == {"trace_"}


def test_two_forms_of_each_dump_are_two_sets_and_the_fuller_one_is_read(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"_dump_{rank}").write_bytes(b"\x80\x05}.")
        (tmp_path / f"_dump_{rank}.json").write_text(json.dumps({"entries": [], "version": "2.4"}))
    files = find([str(tmp_path)])
    assert {path.suffix for path in files.paths.values()} == {".json"}
    assert [len(other) for other in files.others] == [4]


def test_ranks_with_and_without_a_suffix_are_one_set(tmp_path: Path) -> None:
    for name in ("_dump_0", "_dump_1", "_dump_2.json", "_dump_3.pickle"):
        (tmp_path / name).write_text("x")
    assert list(find([str(tmp_path)]).paths) == [0, 1, 2, 3]


def test_recorders_that_are_off_say_nothing_of_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(3):
        (tmp_path / f"_dump_{rank}.json").write_text(json.dumps({"version": "2.10"}))
    code, out = run(capsys, str(tmp_path), "--json")
    found = json.loads(out)
    assert (code, found["kind"], found["culprit_ranks"]) == (1, "cannot-tell", [])
    assert "hold no operation" in found["evidence"][0]
