"""Names for what actors of several classes do together: operations and transfers of weights.

Finding who waits for whom needs no names. Names of methods and functions only decide what to call
it: trainers have always sent their weights to engines under names that contain "weight".
"""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel import regex as re
from ray_sentinel.waitgraph.operations import ActorOperation
from ray_sentinel.waitgraph.ray_calls import RayFacts
from ray_sentinel.waitgraph.solver import GraphRoot

_WEIGHTS = re.compile(r"weights?(?:[^a-z]|$)|refit", re.IGNORECASE)
"""What names of methods and functions contain that hand over weights, such as "update_weights",
"sync_weights_to_engines" or "refit"."""


def meeting(root: GraphRoot, translated: RayFacts) -> str:
    """What the processes that a root holds up do together; empty if all are of one class.

    "broadcast of Trainer and Engine", "the weight synchronisation of Trainer and Engine".
    """
    on_the_way = {node for edge in root.chain for node in (edge.who, edge.awaited)}
    for operation in translated.operations:
        held_up = operation.node in on_the_way or not set(operation.missing).isdisjoint(
            root.members
        )
        if len(operation.roles) > 1 and held_up:
            return _of_operation(operation, translated)
    return _by_ray(root, translated)


def _by_ray(root: GraphRoot, translated: RayFacts) -> str:
    """What actors do together if one class makes weights and another fetches them through Ray;
    otherwise empty."""
    known = translated.processes.known
    actors = [n for n in (*root.members, *root.waiters) if n in known and known[n].actor]
    own = [node for node in actors if node in root.members]
    of_weights = [n for n in actors if _of_weights(call.name for call in translated.runs(n))]
    taking_part = actors if set(own) & set(of_weights) else (*own, *of_weights)
    roles = sorted({known[node].role for node in taking_part})
    return _synchronisation(roles, "by Ray") if of_weights and len(roles) > 1 else ""


def _of_operation(operation: ActorOperation, translated: RayFacts) -> str:
    names = [
        name
        for node in (*operation.inside, *operation.missing)
        for name in (
            *(call.name for call in translated.runs(node)),
            *translated.functions(node),
        )
    ]
    if not _of_weights(names):
        return operation.text
    return _synchronisation(operation.roles, operation.name)


def _synchronisation(roles: Iterable[str], how: str) -> str:
    by = f" ({how})" if how else ""
    return f"the weight synchronisation of {' and '.join(roles)}{by}"


def _of_weights(names: Iterable[str]) -> bool:
    return any(_WEIGHTS.search(name) for name in names)
