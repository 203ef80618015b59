"""Which ranks' RAS services are asked: told from their libraries and environments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.capture.nccl_library import library_of
from ray_sentinel.capture.ras import poll_ranks
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.identity import ProcessId, Rank, RankId


def process(proc: Path, pid: int, library: str = "", environ: str = "", wheel: str = "") -> Rank:
    """A process in a /proc of our own."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    lines = ["7f00-7f01 r-xp 0 08:01 1    /usr/lib/libc.so.6"]
    if library:
        lines.append(f"7f02-7f03 r-xp 0 08:01 2    {library}")
        inside = Path(str(folder / "root") + library)
        inside.parent.mkdir(parents=True)
        inside.touch()
        if wheel:
            (inside.parents[3] / wheel).mkdir()
    (folder / "maps").write_text("\n".join(lines) + "\n")
    (folder / "environ").write_bytes(environ.encode().replace(b" ", b"\0"))
    return Rank(id=RankId("job", 0, pid), process=ProcessId("h", pid), node="n")


class Service:
    """Notes who was asked."""

    def __init__(self, answer: bytes | None = b"{}") -> None:
        self.asked: list[tuple[str, int, bool]] = []
        self.answer = answer

    def __call__(self, host: str, port: int, *, json: bool, deadline: float) -> bytes:
        self.asked.append((host, port, json))
        if self.answer is None:
            raise UnreachableError("nobody there")
        return self.answer


SITE = "/env/lib/python3.11/site-packages"


def test_the_version_is_read_from_the_wheel_or_the_name(tmp_path: Path) -> None:
    wheel = "nvidia_nccl_cu12-2.29.3.dist-info"
    process(tmp_path, 1, f"{SITE}/nvidia/nccl/lib/libnccl.so.2", wheel=wheel)
    process(tmp_path, 2, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.27.5")
    process(tmp_path, 3, "/opt/rocm/lib/librccl.so.1.0.70000")
    process(tmp_path, 4)
    versions = [library_of(pid, str(tmp_path)) for pid in (1, 2, 3, 4, 5)]
    assert [(v.name, v.version) if v else None for v in versions[:2]] == [
        ("NCCL", "2.29.3"),
        ("NCCL", "2.27.5"),
    ]
    assert versions[2] is not None
    assert (versions[2].name, versions[2].version) == ("RCCL", "")
    assert versions[3:] == [None, None]


def test_one_answer_for_each_address(tmp_path: Path) -> None:
    ranks = [
        process(tmp_path, pid, "/l/libnccl.so.2.30.1", environ)
        for pid, environ in enumerate(["A=1", "", "NCCL_RAS_ADDR=localhost:3000"], 10)
    ]
    service = Service()
    found = poll_ranks(ranks, proc=str(tmp_path), ask=service)
    assert service.asked == [("localhost", 28028, True), ("localhost", 3000, True)]
    assert found.polls == (b"{}", b"{}")
    assert not found.problems


def test_of_two_addresses_the_one_that_nccl_sees_is_asked(tmp_path: Path) -> None:
    twice = "NCCL_RAS_ADDR=localhost:3000 NCCL_RAS_ADDR=localhost:4000"
    service = Service()
    poll_ranks(
        [process(tmp_path, 1, "/l/libnccl.so.2.30.1", twice)], proc=str(tmp_path), ask=service
    )
    assert service.asked == [("localhost", 3000, True)]


@pytest.mark.parametrize(
    ("library", "environ", "setting", "word"),
    [
        ("/l/libnccl.so.2.27.3", "", "auto", "crash"),
        ("/l/libnccl.so.2", "", "auto", "unknown version"),
        ("/l/libnccl.so.2.30.1", "NCCL_RAS_ENABLE=0", "auto", "switched it off"),
        ("/l/libnccl.so.2.30.1", "NCCL_RAS_ADDR=here:there", "auto", "no port"),
        ("/l/libnccl.so.2.30.1", "", "never", "never"),
    ],
)
def test_who_is_not_asked_and_why(
    tmp_path: Path, library: str, environ: str, setting: str, word: str
) -> None:
    service = Service()
    ranks = [process(tmp_path, pid, library, environ) for pid in (1, 2)]
    found = poll_ranks(ranks, setting, proc=str(tmp_path), ask=service)
    assert not service.asked
    assert len(found.problems) == 1
    assert word in found.problems[0]


def test_an_old_version_is_asked_for_text_where_that_is_wanted(tmp_path: Path) -> None:
    service = Service()
    rank = process(tmp_path, 1, "/l/libnccl.so.2.27.3")
    poll_ranks([rank], "always", proc=str(tmp_path), ask=service)
    assert service.asked == [("localhost", 28028, False)]


def test_ranks_without_nccl_are_no_problem(tmp_path: Path) -> None:
    assert poll_ranks([process(tmp_path, 1)], proc=str(tmp_path), ask=Service()).problems == ()


def test_a_service_that_does_not_answer_is_a_problem(tmp_path: Path) -> None:
    rank = process(tmp_path, 1, "/l/libnccl.so.2.30.1")
    found = poll_ranks([rank], proc=str(tmp_path), ask=Service(None))
    assert found.problems == ("NCCL RAS: nobody there",)


def test_a_process_whose_memory_is_locked_holds_up_nobody(
    tmp_path: Path, hanging: Callable[..., object]
) -> None:
    library = "/usr/lib/libnccl.so.2.29.3"
    stuck, well = (process(tmp_path, pid, library) for pid in (1, 2))
    hanging(stuck.process)
    service = Service()
    found = poll_ranks([stuck, well], proc=str(tmp_path), ask=service)
    assert len(service.asked) == len(found.polls) == 1
    (problem,) = found.problems
    assert problem.startswith("NCCL RAS: pid 1: ")
