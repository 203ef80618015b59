"""Inference engines, whose processes carry their ranks in their titles.

SGLang's schedulers call themselves ``sglang::scheduler`` followed by what is more than one of data,
pipeline, tensor and expert parallel ranks (``sglang::scheduler_DP0_PP1_TP2_EP0``, in an order that
changed between versions); each holds a part of the model. vLLM's workers are ``VLLM::Worker`` with
the same kinds of ranks; with one worker there is none, and ``VLLM::EngineCore`` holds the model.
Routers, tokenisers and HTTP front ends hold no part of a model.

Where titles are not set, SGLang's processes are those with ``python ... sglang`` on their command
line, without routers, clients and the front end that the others are children of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.proc.processes import Process

_SGLANG = re.compile(r"^sglang::scheduler(?P<ranks>(?:_[A-Za-z]+\d+)*)(?:\s|_|:|$)")
_VLLM = re.compile(r"^VLLM::(?P<kind>Worker|EngineCore)(?P<ranks>(?:_[A-Z]+\d+)*)(?:\s|$)")
_RANK = re.compile(r"_([A-Za-z]+)(\d+)")
_SGLANG_PROCESS = re.compile(r"(?:^|[/\s.])sglang(?:$|[/\s._:])")
_SGLANG_OTHERS = re.compile(
    r"router|gateway|bench|client|detokenizer|tokenizer|http|frontend|mini_lb|disaggregation\.lb"
)
_SGLANG_TITLE = re.compile(r"^sglang::(?!scheduler)")
_ADDRESS = re.compile(r"--(?:dist-init-addr|nccl-init-addr)[=\s]+(\S+)")
_TENSOR = re.compile(r"--(?:tp|tp-size|tensor-parallel-size)[=\s]+(\d+)")
_PIPELINE = re.compile(r"--(?:pp|pp-size|pipeline-parallel-size)[=\s]+(\d+)")


class EngineRank(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds a part of a model."""

    process: Process
    job: str
    rank: int
    world_size: int | None


class _Part(msgspec.Struct, frozen=True):
    process: Process
    engine: str
    ranks: dict[str, int]


def engine_ranks(table: Mapping[int, Process]) -> tuple[EngineRank, ...]:
    """The engines' ranks among the processes.

    Global ranks are counted as the engines do: tensor inside pipeline inside data parallel ranks.
    If a title names no ranks, they are counted in the order of their start.
    """
    groups: dict[tuple[str, Key], list[_Part]] = {}
    parts = [part for process in table.values() if (part := _part(process)) is not None]
    members = {part.process.key for part in parts}
    for part in _workers(parts):
        groups.setdefault((part.engine, _launcher(part.process, members)), []).append(part)
    for launcher, untitled in _untitled(table, {key for _, key in groups}):
        groups[("sglang", launcher)] = untitled
    found: list[EngineRank] = []
    for (engine, launcher), group in groups.items():
        found += _number(engine, launcher, group, table)
    return tuple(found)


def engine_of(title: str) -> str:
    """Which engine a rank's process belongs to, found by ``engine_ranks``.

    >>> engine_of("VLLM::Worker_TP0"), engine_of("python3 -m sglang.launch_server")
    ('vllm', 'sglang')
    """
    return "vllm" if _VLLM.match(title) else "sglang"


def _part(process: Process) -> _Part | None:
    title = process.arguments[0] if process.arguments else ""
    if match := _SGLANG.match(title):
        return _Part(process, "sglang", _ranks(match["ranks"]))
    if match := _VLLM.match(title):
        ranks = _ranks(match["ranks"])
        return _Part(process, "vllm", ranks if match["kind"] == "Worker" else {"core": 1, **ranks})
    return None


def _ranks(text: str) -> dict[str, int]:
    return {kind.upper(): int(number) for kind, number in _RANK.findall(text)}


def _launcher(process: Process, members: set[Key]) -> Key:
    """The nearest ancestor that is not part of the engine itself."""
    above = (key for key in process.lineage if key not in members)
    return next(above, (process.parent, 0))


def _workers(parts: Sequence[_Part]) -> list[_Part]:
    """The parts that are ranks: vLLM's engine core is one only if it has no workers."""
    cores = {part.process.key for part in parts if "core" in part.ranks}
    with_workers = {key for part in parts for key in part.process.lineage if key in cores}
    return [part for part in parts if part.process.key not in with_workers]


def _number(
    engine: str, launcher: Key, parts: Sequence[_Part], table: Mapping[int, Process]
) -> list[EngineRank]:
    line = _command_line(launcher, parts, table)
    pairs = [(part.ranks.get("PP", 0), part.ranks.get("TP", 0)) for part in parts]
    named = all(part.ranks.keys() & {"TP", "PP", "DP"} for part in parts)
    tensor = _option(_TENSOR, line) or 1 + max((tp for _, tp in pairs), default=0)
    pipeline = _option(_PIPELINE, line) or 1 + max((pp for pp, _ in pairs), default=0)
    replicas = 1 + max((part.ranks.get("DP", 0) for part in parts), default=0)
    # With attention over data-parallel ranks these lie inside the tensor-parallel ones.
    replicated = len(set(pairs)) < len(pairs) and replicas > 1
    address = _ADDRESS.search(line)
    job = f"{engine}-{address[1] if address else launcher[0]}"
    found = []
    ordered = sorted(parts, key=lambda part: (part.process.start, part.process.pid))
    for index, part in enumerate(ordered):
        rank = part.ranks.get("PP", 0) * tensor + part.ranks.get("TP", 0)
        if replicated:
            rank += part.ranks.get("DP", 0) * tensor * pipeline
        found.append(
            EngineRank(
                process=part.process,
                job=job,
                rank=rank if named else index,
                world_size=tensor * pipeline * (replicas if replicated else 1)
                if named
                else len(parts),
            )
        )
    return found


def _command_line(launcher: Key, parts: Sequence[_Part], table: Mapping[int, Process]) -> str:
    keys = {launcher, *(key for part in parts for key in part.process.lineage)}
    return " ".join(
        process.title
        for process in table.values()
        if process.key in keys and _SGLANG_PROCESS.search(process.title + " ")
    )


def _option(pattern: re.Pattern[str], line: str) -> int | None:
    match = pattern.search(line)
    return int(match[1]) if match and 0 < int(match[1]) < 100_000 else None


def _untitled(table: Mapping[int, Process], titled: set[Key]) -> list[tuple[Key, list[_Part]]]:
    """SGLang's processes without titles: the children of a front end that still show its command
    line."""
    members = {
        process.key: process
        for process in table.values()
        if process.interpreter and _is_untitled_sglang(process)
    }
    groups: dict[Key, list[_Part]] = {}
    for process in members.values():
        above = [key for key in process.lineage if key in members]
        if above and above[-1] not in titled and not _parent_of(process, members):
            groups.setdefault(above[-1], []).append(_Part(process, "sglang", {}))
    return [(key, parts) for key, parts in groups.items() if not _has_titled_below(key, table)]


def _is_untitled_sglang(process: Process) -> bool:
    title = process.title
    return (
        _SGLANG_PROCESS.search(title) is not None
        and _SGLANG_OTHERS.search(title) is None
        and _SGLANG_TITLE.match(title) is None
        and "multiprocessing.resource_tracker" not in title
    )


def _parent_of(process: Process, members: Mapping[Key, Process]) -> bool:
    return any(process.key in other.lineage for other in members.values())


def _has_titled_below(key: Key, table: Mapping[int, Process]) -> bool:
    return any(
        key in process.lineage and process.title.startswith("sglang::")
        for process in table.values()
    )
