"""Why ptrace is refused, told from a tree of /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.capture.refusal import why_refused

ALL = "000001ffffffffff"
NONE = "0000000000000000"


def tree(
    root: Path,
    *,
    capabilities: str = NONE,
    uid: int = 1000,
    theirs: str = "1000\t1000\t1000\t1000",
    scope: str = "",
    seccomp: int = 0,
    namespace: str = "pid:[1]",
) -> str:
    for name, where in (("self", "pid:[1]"), ("7", namespace)):
        folder = root / name
        (folder / "ns").mkdir(parents=True)
        (folder / "ns" / "pid").symlink_to(where)
        (folder / "ns" / "user").symlink_to("user:[1]")
    own = f"\t{uid}".join([""] * 5)
    (root / "self" / "status").write_text(
        f"Name:\tagent\nUid:{own}\nCapEff:\t{capabilities}\nSeccomp:\t{seccomp}\n"
    )
    (root / "7" / "status").write_text(f"Name:\trank\nUid:\t{theirs}\n")
    if scope:
        yama = root / "sys/kernel/yama"
        yama.mkdir(parents=True)
        (yama / "ptrace_scope").write_text(scope + "\n")
    return str(root)


@pytest.mark.parametrize(
    ("fields", "said", "unsaid"),
    [
        ({"scope": "1"}, ["ptrace_scope is 1", "attach()", "CAP_SYS_PTRACE"], ["belongs to"]),
        ({"scope": "2"}, ["ptrace_scope is 2", "only CAP_SYS_PTRACE"], []),
        ({"scope": "3"}, ["until the next boot"], []),
        ({"scope": "0"}, ["CAP_SYS_PTRACE is missing"], ["ptrace_scope"]),
        ({"theirs": "0\t0\t0\t0"}, ["user 0, we are user 1000"], []),
        ({"theirs": "1000\t1000\t0\t1000"}, ["belongs to"], []),
        ({"seccomp": 2}, ["seccomp filter is active"], []),
        ({"capabilities": ALL, "seccomp": 2}, ["seccomp filter forbids"], ["is missing"]),
        ({"capabilities": ALL, "namespace": "pid:[2]"}, ["another container"], ["is missing"]),
        ({"capabilities": ALL, "scope": "1"}, ["cannot be seen from here"], ["ptrace_scope is"]),
    ],
)
def test_the_missing_right_is_named(
    tmp_path: Path, fields: dict[str, object], said: list[str], unsaid: list[str]
) -> None:
    text = why_refused(7, tree(tmp_path, **fields))  # type: ignore[arg-type]
    assert text.startswith("ptrace was refused")
    assert all(part in text for part in said), text
    assert not any(part in text for part in unsaid), text


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    assert "gone" in why_refused(8, tree(tmp_path))
