"""Equal stacks are kept once, and read as if every file held them."""

from __future__ import annotations

from ray_sentinel.evidence.stacks.same import fold, refers_to, unfold

FRAMES = "".join(f"    function_{i} (/app/module_{i}.py:{i})\n" for i in range(20))


def dump(pid: int, frames: str = FRAMES) -> bytes:
    head = f'# rank: {pid}\nProcess {pid}: train\n\nThread {pid} (idle): "MainThread"\n'
    return (head + frames).encode()


def test_only_the_first_of_equal_stacks_is_kept() -> None:
    files = {f"pyspy_n_{pid}.txt": dump(pid) for pid in range(10, 30)}
    files["pyspy_n_30.txt"] = dump(30, FRAMES.replace("module_3.py:3", "module_3.py:4"))
    files["kernel_n_10.txt"] = b"[<0>] futex_wait\n" * 100
    folded = fold(files)
    assert folded.keys() == files.keys()
    assert folded["pyspy_n_10.txt"] == files["pyspy_n_10.txt"]
    assert folded["pyspy_n_30.txt"] == files["pyspy_n_30.txt"]
    assert folded["kernel_n_10.txt"] == files["kernel_n_10.txt"]
    assert refers_to(folded["pyspy_n_11.txt"].decode()) == "pyspy_n_10.txt"
    assert sum(map(len, folded.values())) < sum(map(len, files.values())) / 3


def test_what_was_folded_reads_as_before() -> None:
    files = {"pyspy_n_10.txt": dump(10), "pyspy_n_11.txt": dump(11)}
    folded = {name: data.decode() for name, data in fold(files).items()}
    text = unfold(folded["pyspy_n_11.txt"], folded["pyspy_n_10.txt"])
    assert text.startswith("# rank: 11\nProcess 11: train\n")
    assert text.endswith(FRAMES)


def test_what_is_short_or_no_dump_of_py_spy_s_is_left_alone() -> None:
    files = {
        "pyspy_a_1.txt": b"Process 1: x\n",
        "pyspy_a_2.txt": b"Process 2: x\n",
        "report.md": b"x",
    }
    assert fold(files) == files
    assert refers_to("Process 1: x\n") == ""
    assert unfold("no dump", "Process 1: x\n") == "no dump"


def test_what_nodes_folded_is_folded_again_as_if_it_had_been_whole() -> None:
    long = FRAMES.replace("module_3", "module_4")
    nodes = [
        {
            f"pyspy_{host}_{pid}.txt": dump(pid, long if pid == 12 else FRAMES).replace(
                b": train", b": train " + b"x" * width
            )
            for pid in range(10, 14)
        }
        for host, width in (("a", 0), ("b", 600), ("c", 0))
    ]
    whole = {name: data for node in nodes for name, data in node.items()}
    sent = {name: data for node in nodes for name, data in fold(node).items()}
    assert fold(sent) == fold(whole)
    assert sum(map(len, sent.values())) < sum(map(len, whole.values()))
