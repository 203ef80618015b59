"""Activities recognised by function names in stacks: waiting for requests, and long work.

The ranks of an inference engine wait for each other also while they wait for requests: one polls a
socket or a queue, and broadcasts what came (mostly nothing) to the others. All of them are then
below the function that receives requests; one that is elsewhere has work, or is stuck.
"""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel import regex as re
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.model.stacks import StackFact

# Work that naturally takes long, recognised by the names that people give to their functions.
#
# A rank that sleeps in a function called ``save_checkpoint`` while its peers wait at a barrier
# looks like one that hangs, because no library's frame shows that it saves. Only its own name does.

LONG_ACTIVITIES = frozenset({"checkpoint", "compile", "startup"})
"""Activities that are everyday work although they keep the GIL, or sit in the kernel. They are told
by stacks whose frames are known."""
NAMES = re.compile(
    r"(^|[._])(save|write|dump|store|upload|export|load|restore|read)_?(the_)?\w*"
    r"(checkpoint|ckpt|model|weights|state_dict|snapshot)"
    r"|checkpoint(ing)?$|(^|[._])(do_|run_|async_)?(evaluat(e|ion)|validat(e|ion)|eval)(_\w+)?$"
    r"|(^|[._])(validation|eval|test)_(epoch|loop|step)$",
    re.IGNORECASE,
)
LIBRARIES = re.compile(r"\((torch|ray|numpy|threading|asyncio|concurrent|multiprocessing)\b")
"""Frames that are not the user's own code: PyTorch's ``checkpoint`` computes activations again."""


def computes(fact: StackFact) -> bool:
    """Whether the process itself is working: on a CPU, or in an operation that takes long."""
    return bool(fact.active) or fact.activity in LONG_ACTIVITIES | {"compute", "allocation"}


def takes_long(fact: StackFact) -> bool:
    """Whether the stack contains a function that saves, loads or evaluates."""
    return any(
        NAMES.search(place.partition(" (")[0]) and not LIBRARIES.search(place)
        for place in fact.signature
    )


_RECEIVES = re.compile(
    r"(^|\.)(recv_requests|maybe_sleep(_on_idle)?) \(([^ ]*/)?sglang/srt/"
    r"|(^|\.)_process_input_queue \(([^ ]*/)?vllm/v1/engine/"
)
"""Frames in which SGLang's schedulers (rank 0 may rest in ``maybe_sleep``) and vLLM's engine core
wait for requests."""
_WORKER_LOOP = re.compile(r"(^|\.)worker_busy_loop \(([^ ]*/)?vllm/")
_WORKER_QUEUE = re.compile(r"(^|\.)(dequeue|acquire_read) \(([^ ]*/)?vllm/distributed/")
"""Frames in which vLLM's workers take their next call from a queue in shared memory."""


def has_nothing_to_do(job: JobView) -> bool:
    """Whether every rank was seen idle, or waiting for requests, since the job last moved."""
    moved = job.moved_at()
    looks = [view.looks[-1] for view in job.live if view.looks and view.looks[-1].at >= moved]
    return 0 < len(looks) == len(job.live) and all_idle(looks)


def all_idle(facts: Iterable[StackFact]) -> bool:
    """Whether all processes of a job, given their stacks, have nothing to do."""
    return all(fact.activity == "idle" or awaits_requests(fact) for fact in facts)


def awaits_requests(fact: StackFact) -> bool:
    """Whether a rank of an inference engine receives, or waits for, its next request."""
    places = fact.signature
    return any(
        _RECEIVES.search(place)
        or (_WORKER_LOOP.search(place) and _WORKER_QUEUE.search("".join(places[at + 1 : at + 2])))
        for at, place in enumerate(places)
    )
