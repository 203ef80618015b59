"""Converts entries of old versions to the terms of later ones.

Version 2.0 split ``seq_id`` into a counter for collectives and one for transfers; ``is_p2p`` was
added after that. Before, one counter served for both, so members count the same collective
differently; the very first versions do not name groups either.
"""

from __future__ import annotations

from typing import Any

_TRANSFERS = ("send ", "recv ")


def modern(rows: list[Any]) -> tuple[list[Any], bool]:
    """The rows with ``is_p2p``, and whether rows that cannot be compared between ranks were left
    out."""
    if not rows or "is_p2p" in rows[0] or "profiling_name" not in rows[0]:
        return rows, False
    result: list[Any] = []
    for row in rows:
        result.append({**row, "is_p2p": _is_p2p(row, result[-1] if result else None)})
    if "collective_seq_id" in rows[0]:
        return result, False
    return _comparable(result)


def _is_p2p(row: dict[str, Any], before: dict[str, Any] | None) -> bool:
    name = str(row.get("profiling_name")).rpartition(":")[2]
    if name.startswith(_TRANSFERS):
        return True
    # A batch's closing entry follows its parts and shares their number.
    return (
        name == "coalesced"
        and before is not None
        and before["is_p2p"]
        and before.get("pg_id") == row.get("pg_id")
        and before.get("p2p_seq_id") == row.get("p2p_seq_id")
    )


def _comparable(rows: list[Any]) -> tuple[list[Any], bool]:
    """The rows of groups that can be compared between ranks, and whether any others were left out.

    A group cannot where it has no name and is not the first, or where it has both collectives and
    transfers.
    """
    kinds: dict[str, set[bool]] = {}
    for row in rows:
        batch = str(row.get("profiling_name")).endswith("coalesced")
        kinds.setdefault(str(row.get("pg_id")), set()).add(row["is_p2p"] or batch)
    named = "process_group" in rows[0]
    kept = {pg for pg, both in kinds.items() if len(both) == 1 and (named or pg == "0")}
    blind = len(kept) < len(kinds) or any(True in both for both in kinds.values())
    return [row for row in rows if str(row.get("pg_id")) in kept], blind
