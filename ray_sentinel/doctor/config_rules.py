"""Rules for the values in an elastic training's configuration."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from ray_sentinel.doctor.yaml_text import Mistake

KNOWN: dict[str, frozenset[str]] = {
    "elastic": frozenset(
        {"min_nodes", "max_nodes", "nproc_per_node", "max_restarts", "rdzv_backend"}
        | {"rdzv_endpoint", "rdzv_id", "rdzv_timeout", "monitor_interval"}
    ),
    "scaling": frozenset(
        {"strategy", "target_global_batch_size", "scale_lr", "base_batch_size", "warmup_steps"}
    ),
    "checkpoint": frozenset(
        {"checkpoint_interval", "memory_snapshot_interval", "checkpoint_dir", "s3_bucket"}
        | {"s3_prefix", "nvme_path", "keep_last", "max_snapshots", "max_memory_mb"}
        | {"async_save", "resume_from"}
    ),
    "training": frozenset(
        {"lr", "batch_size", "max_steps", "epochs", "seed", "weight_decay", "grad_clip"}
        | {"max_grad_norm", "warmup_steps", "gradient_accumulation_steps", "log_interval"}
        | {"eval_interval", "save_interval", "micro_batch_size", "dtype"}
    ),
    "data": frozenset(
        {"text_key", "data_files", "tokenizer", "index_path", "num_workers", "seq_length"}
        | {"shuffle", "path"}
    ),
}
"""The sections and keys of elastic trainings; other names are allowed, but near misses are
questioned."""

STRATEGIES = ("variable_batch", "constant_batch")
MAY_BE_ZERO = frozenset({"memory_snapshot_interval", "eval_interval"})
"""Keys whose value may be 0, which turns them off."""
NEAR = 0.82
"""Similarity (the ratio of ``difflib``) from which a key is taken for a misspelling of another."""
MOST_DEPTH = 40
"""Most levels of nested sections that are examined: anchors can nest endlessly."""


def check_values(data: Any) -> Iterator[Mistake]:
    """Problems with node counts, intervals, and values that must go together, in any section."""
    for path, table in _tables(data):
        yield from _nodes(path, table)
        yield from _scaling(path, table)
        for key, value in table.items():
            if isinstance(key, str):
                yield from _number(_join(path, key), key, value)


def check_keys(data: Any, like: Any = None) -> Iterator[Mistake]:
    """Unknown keys, with the nearest known one.

    ``like`` is a configuration that is known to be valid: a key that it does not have is unknown.
    Without one, only names that almost match those of an elastic training are questioned.
    """
    known = dict(_known(like)) if like is not None else None
    for path, table in _tables(data):
        section = path.rpartition(".")[2]
        if known is not None:
            names = known.get(path)
        else:
            names = KNOWN.get(section) if path else frozenset(KNOWN)
        for key in table if names else ():
            if not isinstance(key, str) or key in (names or ()):
                continue
            near = difflib.get_close_matches(key, sorted(names or ()), 1, NEAR)
            if near or known is not None:
                yield Mistake(
                    text=f"{_join(path, key)} is no known key",
                    remedy=f"did you mean {near[0]}?"
                    if near
                    else f"known here: {', '.join(sorted(names or ()))}",
                    fatal=known is not None,
                )


def needed_nodes(data: Any) -> int | None:
    """The smallest number of nodes that the run accepts."""
    values = (table.get("min_nodes") for _, table in _tables(data))
    return max((int(value) for value in values if _is_number(value)), default=None)


def _known(like: Any) -> Iterator[tuple[str, frozenset[str]]]:
    for path, table in _tables(like):
        yield path, frozenset(key for key in table if isinstance(key, str))


def _tables(data: Any) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """(dotted path, mapping), each once, the top first."""
    stack: list[tuple[str, Any, int]] = [("", data, 0)]
    seen: set[int] = set()
    while stack:
        path, item, depth = stack.pop()
        if not isinstance(item, Mapping) or id(item) in seen or depth > MOST_DEPTH:
            continue
        seen.add(id(item))
        yield path, item
        stack += [(_join(path, str(key)), value, depth + 1) for key, value in item.items()]


def _nodes(path: str, table: Mapping[Any, Any]) -> Iterator[Mistake]:
    least, most = table.get("min_nodes"), table.get("max_nodes")
    for name, value in (("min_nodes", least), ("max_nodes", most)):
        if name in table and (not _is_number(value) or value < 1 or value != int(value)):
            yield Mistake(
                text=f"{_join(path, name)} must be a whole number of at least 1, and is {value!r}",
                remedy=f"write {name}: 1, or more",
            )
    if _is_number(least) and _is_number(most) and most < least:
        yield Mistake(
            text=f"{_join(path, 'max_nodes')} is {most}, less than min_nodes, which is {least}",
            remedy=f"write max_nodes: {least}, or more",
        )


def _scaling(path: str, table: Mapping[Any, Any]) -> Iterator[Mistake]:
    strategy = table.get("strategy")
    if path.rpartition(".")[2] != "scaling" or strategy is None:
        return
    if strategy not in STRATEGIES:
        near = difflib.get_close_matches(str(strategy), STRATEGIES, 1)
        yield Mistake(
            text=f"{path}.strategy {strategy!r} is no strategy; there are: {', '.join(STRATEGIES)}",
            remedy=f"did you mean {near[0]}?" if near else f"write strategy: {STRATEGIES[0]}",
        )
    if strategy == "constant_batch" and table.get("target_global_batch_size") is None:
        yield Mistake(
            text=f"{path}.target_global_batch_size is missing, and constant_batch needs it",
            remedy="add it, or use strategy: variable_batch",
        )


def _number(path: str, key: str, value: Any) -> Iterator[Mistake]:
    positive = key.endswith("_interval") or key in ("batch_size", "target_global_batch_size")
    if not positive or value is None or (isinstance(value, str) and "$" in value):
        return
    zero = value == 0 and key in MAY_BE_ZERO
    if not _is_number(value) or (value <= 0 and not zero):
        yield Mistake(
            text=f"{path} must be positive, and is {value!r}",
            remedy=f"write {key}: 500, or another positive number",
        )


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
