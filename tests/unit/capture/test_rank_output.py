"""What ranks wrote last: found while they live, when they have ended, and by Ray's name for it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.messages import Outputs, pack_masked
from ray_sentinel.capture.rank_output import MOST_BYTES, MOST_LINES, RankOutputs, last_lines
from ray_sentinel.clock import BootClock, WallHistory
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import RankOutput, writer_of
from ray_sentinel.progress.rank.own_process import start_ticks
from tests.support.waiting import eventually

PLENTY = 1 << 20
Start = Callable[..., tuple[Rank, "subprocess.Popen[bytes]"]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a rank that says READY on its standard error, and ends when its input does."""
    begun: list[subprocess.Popen[bytes]] = []

    def starting(
        code: str, stdout: object, stderr: object, number: int = 0
    ) -> tuple[Rank, subprocess.Popen[bytes]]:
        program = "import sys\n" + textwrap.dedent(code)
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", program],
            stdin=subprocess.PIPE,
            stdout=stdout,  # type: ignore[arg-type]
            stderr=stderr,  # type: ignore[arg-type]
        )
        begun.append(process)
        who = ProcessId("host", process.pid, start_ticks(process.pid))
        return Rank(id=RankId("job", 0, number), process=who, node="node"), process

    yield starting
    for process in begun:
        process.kill()
        process.communicate()


def only(outputs: RankOutputs, rank: Rank, most: int = PLENTY) -> RankOutput:
    (found,) = outputs.gather([writer_of(rank)], most)
    return found


def written(path: Path, text: bytes) -> None:
    eventually(lambda: text in path.read_bytes(), f"{text!r} in {path}")


def test_both_streams_of_a_rank_that_lives(start: Start, tmp_path: Path) -> None:
    code = """
        print("step 1")
        print("api_key=sk-abcdefghijklmnopqrstuvwx", file=sys.stderr)
        sys.stdin.read()
    """
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        rank, _ = start(code, out, err, 3)
    written(tmp_path / "err", b"api_key")
    found = only(RankOutputs("a"), rank)
    text = found.data.decode()
    assert f"==> stdout: {tmp_path}/out <==\nstep 1\n" in text
    assert "api_key=***" in text
    assert "sk-abc" not in text
    log = found.log
    assert (log.rank, log.host, log.pid, log.ended) == (3, "a", rank.process.pid, False)
    assert log.missing == log.telling == ""


def test_one_whose_start_nobody_told_is_the_one_that_had_its_pid_last(
    start: Start, tmp_path: Path
) -> None:
    with open(tmp_path / "out", "wb") as out:
        rank, process = start('print("mine"); sys.stdin.read()', out, out)
    written(tmp_path / "out", b"mine")
    outputs = RankOutputs("a")
    outputs.note([rank.process])
    process.kill()
    process.communicate()
    unknown = msgspec.structs.replace(rank.process, start=0)
    found = only(outputs, msgspec.structs.replace(rank, process=unknown))
    assert b"mine" in found.data
    assert (found.log.pid, found.log.ended, found.log.missing) == (rank.process.pid, True, "")


def test_a_rank_that_died_is_read_where_it_wrote_while_it_lived(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_text(
        "Traceback (most recent call last):\n  File 'x'\nKeyError: 'of an earlier run'\n"
    )
    with open(file, "ab") as both:
        rank, process = start(
            'print("step 1"); sys.stdin.read(); raise ValueError("no such batch")', both, both
        )
    outputs = RankOutputs("a")
    outputs.note([rank.process])
    written(file, b"step 1")
    process.communicate()
    log = only(outputs, rank).log
    assert log.ended
    assert log.sources == (f"stdout and stderr: {file}",)
    assert log.telling == "ValueError: no such batch"


def test_a_file_that_is_renamed_keeps_what_the_rank_wrote(start: Start, tmp_path: Path) -> None:
    code = """
        import traceback
        sys.stdin.readline()
        try:
            raise ValueError("y")
        except ValueError:
            traceback.print_exc()
        sys.stdin.read()
    """
    with open(tmp_path / "log", "ab") as both:
        rank, process = start(code, both, both)
    outputs = RankOutputs("a", lambda: tmp_path / "gone")
    outputs.note([rank.process])
    assert process.stdin is not None
    process.stdin.write(b"go on\n")
    process.stdin.flush()
    written(tmp_path / "log", b"ValueError: y")
    (tmp_path / "log").rename(tmp_path / "log.1")
    outputs.note([rank.process])
    process.communicate()
    assert only(outputs, rank).log.telling == "ValueError: y"


def test_what_an_earlier_process_left_in_the_file_is_not_told_of_a_later_one(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_text(
        "Traceback (most recent call last):\n  File 'x'\nKeyError: 'of an earlier run'\n"
    )
    with open(file, "ab") as both:
        rank, process = start('print("step 1"); sys.stdin.read()', both, both)
    outputs = RankOutputs("a")
    outputs.note([rank.process])
    written(file, b"step 1")
    process.communicate()
    found = only(outputs, rank)
    assert b"KeyError" in found.data, "it is there to be read"
    assert found.log.telling == ""


def test_a_file_of_several_ranks_accuses_none_of_them(start: Start, tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as both:
        one, _ = start("sys.stdin.read()", both, both)
        other, process = start('sys.stdin.read(); raise ValueError("x")', both, both, 1)
    outputs = RankOutputs("a")
    outputs.note([one.process, other.process])
    process.communicate()
    log = only(outputs, one).log
    assert log.shared
    assert f"pid {other.process.pid} write to it" in log.sources[0]
    assert log.telling == ""


@pytest.mark.parametrize(
    ("stream", "said"),
    [(subprocess.PIPE, "a pipe"), (subprocess.DEVNULL, "stdout and stderr is /dev/null")],
)
def test_what_is_no_file_is_said_in_a_line(start: Start, stream: int, said: str) -> None:
    rank, process = start('print("x"); sys.stdin.read()', stream, stream)
    found = only(RankOutputs("a"), rank)
    assert found.data == b""
    assert said in found.log.missing
    assert "\n" not in found.log.missing
    if process.stdout is not None:
        assert process.stdout.read(1) == b"x", "nobody took it away"


def test_a_worker_of_ray_is_found_by_its_pid_also_when_nobody_saw_it_alive(
    start: Start, tmp_path: Path
) -> None:
    rank, process = start("sys.stdin.read()", subprocess.PIPE, subprocess.PIPE)
    pid = rank.process.pid
    for name, text in {
        f"worker-{'a' * 56}-01000000-{pid}.err": "RuntimeError: CUDA error: an illegal access\n",
        f"worker-{'b' * 56}-01000000-{pid}0.err": "another's\n",
        f"worker-{'c' * 56}-01000000-{pid}.out": "an earlier process's\n",
    }.items():
        (tmp_path / name).write_text(text)
    old = tmp_path / f"worker-{'c' * 56}-01000000-{pid}.out"
    os.utime(old, (1e9, 1e9))
    process.communicate()
    found = only(RankOutputs("a", lambda: tmp_path), rank)
    assert found.log.missing == ""
    assert found.log.telling == "RuntimeError: CUDA error: an illegal access"
    assert b"another" not in found.data
    assert b"earlier" not in found.data


def test_a_file_that_another_has_replaced_is_not_read(start: Start, tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as both:
        rank, process = start('print("mine"); sys.stdin.read()', both, both)
    outputs = RankOutputs("a")
    outputs.note([rank.process])
    written(tmp_path / "log", b"mine")
    (tmp_path / "log").rename(tmp_path / "moved")
    assert b"mine" in only(outputs, rank).data, "while it lives the file is known"
    process.communicate()
    (tmp_path / "moved").rename(tmp_path / "kept")
    (tmp_path / "moved").write_text("of another\n")
    found = only(outputs, rank)
    assert found.data == b""
    assert "another file has its name now" in found.log.missing


def test_the_bytes_of_all_together_are_bounded(start: Start, tmp_path: Path) -> None:
    code = 'print("x" * 300_000); print("end"); sys.stdin.read()'
    ranks = []
    for number in range(3):
        with open(tmp_path / f"log-{number}", "wb") as both:
            ranks.append(start(code, both, both, number)[0])
        written(tmp_path / f"log-{number}", b"end")
    found = RankOutputs("a").gather(map(writer_of, ranks), 3000)
    assert [output.log.rank for output in found] == [0, 1, 2]
    assert all(0 < len(output.data) < 1000 + 200 for output in found)


def test_of_a_progress_bar_the_last_form_is_kept() -> None:
    bar = "".join(f"\r{n}%|##  | {n}/100" for n in range(100))
    assert last_lines(f"begin\n{bar}\nend\n", MOST_BYTES) == "begin\n99%|##  | 99/100\nend"


def test_lines_and_bytes_are_bounded_and_terminals_are_not_driven() -> None:
    many = last_lines("".join(f"line {n}\n" for n in range(10_000)), MOST_BYTES)
    assert many.split("\n")[0] == f"line {10_000 - MOST_LINES}"
    assert len(last_lines("ä" * 200_000, MOST_BYTES).encode()) <= MOST_BYTES
    assert "\x1b" not in last_lines("\x1b[2J\x1b]0;x\x07 evil\n", MOST_BYTES)


def test_a_secret_that_the_cut_parts_is_masked() -> None:
    secret = "sk-" + "aB3dE5gH7jK9" * 4
    text = f"export OPENAI_API_KEY={secret}\n" + "x" * 90 + "\n"
    for most in range(100, 160, 7):
        shown = last_lines(text, most, cut=True)
        assert not any(secret[at : at + 12] in shown for at in range(len(secret) - 12)), most


def test_a_wall_clock_that_was_set_makes_no_file_of_ray_older(start: Start, tmp_path: Path) -> None:
    rank, process = start("sys.stdin.read()", subprocess.PIPE, subprocess.PIPE)
    process.communicate()
    stepped = SteppedWall()
    wall = WallHistory(stepped)
    file = tmp_path / f"worker-{'a' * 56}-01000000-{rank.process.pid}.err"
    file.write_text("ValueError: x\n")
    stepped.ahead = 86_400.0
    wall.poll()
    assert only(RankOutputs("a", lambda: tmp_path, wall), rank).log.telling == "ValueError: x"


class SteppedWall(BootClock):
    """The real clocks, but for how far somebody has set the wall's ahead."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.mark.parametrize("name", [b"run-\xff\xfe.log", b"a\xe9\x1b[31m.log", "é.log".encode()])
def test_a_path_that_is_no_text_costs_nothing(start: Start, tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "wb") as out, open(tmp_path / "plain", "wb") as plain:
        ranks = [start('print("step 1"); sys.stdin.read()', file, file) for file in (out, plain)]
    eventually(lambda: os.path.getsize(path), "it is written")
    written(tmp_path / "plain", b"step 1")
    outputs = RankOutputs("a")
    living = outputs.gather([writer_of(rank) for rank, _ in ranks], PLENTY)
    for _, process in ranks:
        process.communicate()
    ended = outputs.gather([writer_of(rank) for rank, _ in ranks], PLENTY)
    os.unlink(path)
    gone = outputs.gather([writer_of(rank) for rank, _ in ranks], PLENTY)
    for found in (*living, *ended):
        assert found.data.endswith(b"step 1\n")
        assert not found.log.missing
    assert "No such file" in gone[0].log.missing
    shown = repr(name)[2:-1] if not name.endswith(b"\xa9.log") else "é.log"
    for found in (living[0], ended[0], gone[0]):
        assert shown in (*found.log.sources, found.log.missing)[0]
    assert b"\x1b" not in living[0].data
    pack_masked(Outputs(found=(*living, *ended, *gone)))
