"""What the collector of training logs reads from lines of real frameworks."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest

from ray_sentinel.api import Absent, Context, NoData
from ray_sentinel.errors import ConfigError
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel_plugins.train_logs import MOST_BYTES, SEARCH_SECONDS, LogTail, TrainLogsCollector

MAXTEXT = (
    "completed step: 7, seconds: 1.250, TFLOP/s/device: 300.1, Tokens/s/device: 4096.5, "
    "total_weights: 65536, loss: 2.500\n"
)


def rank(number: int, pid: int) -> Rank:
    return Rank(id=RankId("llama", 0, number), process=ProcessId("n", pid), node="n")


def collector(tmp_path: Path, *ranks: Rank, **options: object) -> TrainLogsCollector:
    made = TrainLogsCollector.Options(**options)
    return TrainLogsCollector(Context(proc=tmp_path / "proc", options=made, ranks=ranks))


def series(found: TrainLogsCollector) -> dict[str, float]:
    return {
        ",".join(value for _, value in sample.labels): sample.value for sample in found.collect()
    }


def output(tmp_path: Path, pid: int, log: Path) -> None:
    fd = tmp_path / "proc" / str(pid) / "fd"
    fd.mkdir(parents=True)
    (fd / "1").symlink_to(log)
    (fd / "2").symlink_to("/dev/null")


def test_a_named_log(tmp_path: Path) -> None:
    log = tmp_path / "main.log"
    log.write_text("starting\n" + MAXTEXT)
    found = series(collector(tmp_path, files=(str(log),)))
    assert found == {
        "log_step": 7,
        "log_seconds": 1.25,
        "log_loss": 2.5,
        "log_tokens_per_second": 4096.5,
    }


def test_what_a_log_said_long_ago_is_served_no_more(tmp_path: Path) -> None:
    log = tmp_path / "main.log"
    log.write_text(MAXTEXT)
    options = TrainLogsCollector.Options(files=(str(log),), stale_seconds=60.0)
    found = TrainLogsCollector(
        Context(proc=tmp_path / "proc", options=options, state_dir=tmp_path / "state", live=True)
    )
    assert series(found)
    long_ago = log.stat().st_mtime - 3600
    os.utime(log, (long_ago, long_ago))
    with pytest.raises(Absent):
        series(found)


def test_with_no_log_to_follow_it_rests_until_the_next_search(tmp_path: Path) -> None:
    idle = collector(tmp_path)
    with pytest.raises(NoData):
        series(idle)
    assert 0 < idle.pause_seconds <= SEARCH_SECONDS
    (tmp_path / "main.log").write_text(MAXTEXT)
    busy = collector(tmp_path, files=(str(tmp_path / "main.log"),))
    assert series(busy)
    assert busy.pause_seconds == 0


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("Multi-thread loading shards:  40% Completed | 2/5 [00:09<00:13,  4.5s/it]", 0.4),
        ("Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:00<00:01]", 0.25),
        ("Loading checkpoint shards: 100%|##########| 3/3 [00:04<00:00,  1.41s/it]", 1.0),
    ],
)
def test_how_much_of_the_weights_is_loaded(tmp_path: Path, line: str, share: float) -> None:
    log = tmp_path / "main.log"
    log.write_text(f"[2026-01-01 10:00:00 TP0] {line}\r")
    assert series(collector(tmp_path, files=(str(log),))) == {"log_shards_loaded_ratio": share}


def test_a_log_cut_anywhere_or_garbled_tells_nothing_wrong(tmp_path: Path) -> None:
    log = tmp_path / "main.log"
    whole = (MAXTEXT + "Multi-thread loading shards:  40% Completed | 2/5\n").encode() * 2
    log.write_bytes(whole)
    right = series(collector(tmp_path, files=(str(log),)))
    for part in range(len(whole)):
        log.write_bytes(whole[:part])
        try:
            found = series(collector(tmp_path, files=(str(log),)))
        except NoData:
            found = {}
        assert found.items() <= right.items(), part
    dice = random.Random(7)
    for _ in range(200):
        log.write_bytes(dice.randbytes(3000) + b"\n" + whole[: dice.randrange(len(whole))] + b"\n")
        with contextlib.suppress(NoData):
            series(collector(tmp_path, files=(str(log),)))


@pytest.mark.parametrize("kind", ["folder", "dangling", "fifo", "device"])
def test_what_is_no_log_hurts_no_other(tmp_path: Path, kind: str) -> None:
    good, bad = tmp_path / "good.log", tmp_path / "bad.log"
    good.write_text(MAXTEXT)
    if kind == "folder":
        bad.mkdir()
    elif kind == "dangling":
        bad.symlink_to(tmp_path / "nowhere")
    elif kind == "fifo":
        os.mkfifo(bad)
    else:
        bad.symlink_to("/dev/zero")
    found = series(collector(tmp_path, files=(str(bad), str(good))))
    assert found["log_step"] == 7


def test_when_the_raylet_last_wrote(tmp_path: Path) -> None:
    output = tmp_path / "raylet.out"
    output.write_text("alive\n")
    os.utime(output, (1_700_000_000, 1_700_000_000))
    folder = tmp_path / "proc" / "10"
    folder.mkdir(parents=True)
    command = ("/x/raylet", "--gcs-address=a:1", f"--stdout_filepath={output}")
    (folder / "cmdline").write_text("\0".join(command))
    (sample,) = collector(tmp_path).collect()
    assert (sample.name, sample.value) == ("train_raylet_log_timestamp_seconds", 1_700_000_000)
    output.unlink()
    with pytest.raises(NoData):
        list(collector(tmp_path).collect())


def test_the_output_of_a_rank_is_found_and_followed(tmp_path: Path) -> None:
    log = tmp_path / "worker-abc-01000000-77.out"
    log.write_text(MAXTEXT)
    output(tmp_path, 77, log)
    found = collector(tmp_path, rank(3, 77))
    assert series(found)["llama,3,log_step"] == 7
    with log.open("a") as file:
        file.write(MAXTEXT.replace("step: 7", "step: 8")[:20])
    assert series(found)["llama,3,log_step"] == 7
    with log.open("a") as file:
        file.write(MAXTEXT.replace("step: 7", "step: 8")[20:])
    assert series(found)["llama,3,log_step"] == 8


def test_ranks_that_share_a_log_are_told_apart_where_lines_say_so(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(MAXTEXT + "[rank5]: " + MAXTEXT.replace("step: 7", "step: 6"))
    for number in (4, 5):
        output(tmp_path, number, log)
    found = series(collector(tmp_path, rank(5, 5), rank(4, 4)))
    assert found["llama,4,log_step"] == 7
    assert found["llama,5,log_step"] == 6


def test_progress_bars(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"\rTraining:  44%|####  | 440/1000 [01:00<02:00,  7.50it/s]"
        b"\rTraining:  45%|####  | 450/1000 [01:02<02:00,  2.00s/it]\r"
    )
    found = series(collector(tmp_path, files=(str(log),)))
    assert found["log_step"] == 450
    assert found["log_seconds"] == 2.0


NEMO = "=== Step {0}/100 ===\n▶ Training...\n  • Loss: 0.31\n  • Total step time: {1:.2f}s\n"
SKY = (
    "Training Batches Processed:  4%|#  | {0}/300 [10:00<20:00, 9.0s/it]\n"
    "| INFO | utils:101 - Finished: 'step', time cost: {1:.2f}s\n"
)


@pytest.mark.parametrize(
    ("log", "step", "loss"), [(NEMO, 12.0, 0.31), (SKY, 13.0, None)], ids=["NeMo-RL", "SkyRL"]
)
def test_a_duration_on_a_line_of_its_own(
    tmp_path: Path, log: str, step: float, loss: float | None
) -> None:
    path = tmp_path / "log"
    path.write_text(log.format(12, 59.5))
    read = collector(tmp_path, files=(str(path),))
    found = series(read)
    assert (found["log_step"], found["log_seconds"]) == (step, 59.5)
    assert found.get("log_loss") == loss
    with path.open("a") as file:
        file.write(log.format(13, 60.25))
    found = series(read)
    assert (found["log_step"], found["log_seconds"]) == (step + 1, 60.25)


def test_writers_of_one_log_have_durations_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = ("=== Step 4/9 ===", "=== Step 5/9 ===", "Total step time: 7.00s", "Step time: 8.00s")
    path.write_text("".join(f"[rank{n % 2}]: {line}\n" for n, line in enumerate(lines)))
    found = series(collector(tmp_path, files=(str(path),)))
    assert (found["0,log_step"], found["0,log_seconds"]) == (4, 7.0)
    assert (found["1,log_step"], found["1,log_seconds"]) == (5, 8.0)


def test_patterns_of_the_user(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("<<9>> verlust 1,024.5\n")
    pattern = r"<<(?P<step>\d+)>> verlust (?P<loss>[\d.,]+)"
    found = series(collector(tmp_path, files=(str(log),), patterns=(pattern,)))
    assert found == {"log_step": 9, "log_loss": 1024.5}


@pytest.mark.parametrize("pattern", ["(", r"(?P<schritt>\d+)"])
def test_a_pattern_of_no_use_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ConfigError, match="patterns"):
        collector(tmp_path, patterns=(pattern,))


def test_evaluation_is_no_training(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Evaluating:  45%|####  | 450/1000 [01:02<02:00,  2.00s/it]\n")
    with pytest.raises(NoData):
        series(collector(tmp_path, files=(str(log),)))


def test_a_log_that_is_missing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(NoData):
        series(collector(tmp_path, files=(str(tmp_path / "no.log"),)))
    assert "is not there" in caplog.text


def test_a_tail_goes_on_after_rotation_and_truncation(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo\nthr")
    tail = LogTail(log)
    assert tail.lines() == [b"one", b"two"]
    assert tail.lines() == []
    log.write_bytes(b"new\n")
    assert tail.lines() == [b"new"]
    (tmp_path / "next").write_bytes(b"rotated\nlonger\n")
    (tmp_path / "next").rename(log)
    assert tail.lines() == [b"rotated", b"longer"]


def test_a_line_without_end_is_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (2 * MOST_BYTES))
    tail = LogTail(log)
    assert tail.lines() == []
    with log.open("ab") as file:
        file.write(b"x" * MOST_BYTES + b"\nend\n")
    assert tail.lines()[-1] == b"end"
