"""Work that takes long by its nature, told by the names that people give to their functions.

A rank that sleeps in a function called ``save_checkpoint`` while its peers wait at a barrier looks
like one that hangs, for no library's frame says that it saves. Its own name does.
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.model.stacks import StackFact

LONG_ACTIVITIES = frozenset({"checkpoint", "compile", "startup"})
"""Of stacks whose frames are known: everyday work that keeps the GIL, or sits in the kernel."""
NAMES = re.compile(
    r"(^|[._])(save|write|dump|store|upload|export|load|restore|read)_?(the_)?\w*"
    r"(checkpoint|ckpt|model|weights|state_dict|snapshot)"
    r"|checkpoint(ing)?$|(^|[._])(do_|run_|async_)?(evaluat(e|ion)|validat(e|ion)|eval)(_\w+)?$"
    r"|(^|[._])(validation|eval|test)_(epoch|loop|step)$",
    re.IGNORECASE,
)
LIBRARIES = re.compile(r"\((torch|ray|numpy|threading|asyncio|concurrent|multiprocessing)\b")
"""Not the user's own: PyTorch's ``checkpoint`` computes activations again."""


def takes_long(fact: StackFact) -> bool:
    """Whether a function that it is in says that it saves, loads or evaluates."""
    return any(
        NAMES.search(place.partition(" (")[0]) and not LIBRARIES.search(place)
        for place in fact.signature
    )
