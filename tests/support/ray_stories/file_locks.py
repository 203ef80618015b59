"""Actors that wait for a lock on a file which another one holds."""

from __future__ import annotations

import msgspec

from tests.support.ray_stories.jobs import rollouts
from tests.support.ray_story import COMPUTES, SLEEPS, RayStory, StoryProcess

LOCKED_FILE = "/data/cache.lock"
AT_LOCK = msgspec.structs.replace(
    SLEEPS, signature=("generate (rollout.py:7)",), activity="lock-wait", label="waiting for a lock"
)


def lock_holder_stands(*, in_call: bool = True, seconds: int = 100) -> RayStory:
    """Rollout 0 sleeps while it holds the lock: in a call, or else in a thread of its own."""
    story, holder = _locked()
    if in_call:
        _works(story, holder)
    else:
        holder.stack = msgspec.structs.replace(SLEEPS, tid=99, switches=7)
    story.run(seconds)
    return story


def lock_kept() -> RayStory:
    """Rollout 0 has ended its call without releasing the lock."""
    story, _ = _locked()
    story.run(200)
    return story


def lock_holder_works() -> RayStory:
    """Rollout 0 computes for very long while it holds the lock."""
    story, holder = _locked()
    _works(story, holder)
    holder.stack, holder.goes_on = COMPUTES, True
    story.run(600, lambda: holder.works(story.now))
    return story


def lock_in_passing(*, holder_has_thread: bool = False) -> RayStory:
    """Those that were seen to wait for the lock have had it since, in turn, and sleep."""
    story, holder = _locked()
    if holder_has_thread:
        holder.stack = msgspec.structs.replace(SLEEPS, tid=99, switches=7)
    for one in story.processes[2:]:
        one.stack = msgspec.structs.replace(SLEEPS, signature=("generate (rollout.py:9)",))
    story.run(60)
    return story


def lock_of_a_stranger() -> RayStory:
    """The lock is held by a process that is not of the job."""
    story, holder = _locked()
    stranger = msgspec.structs.replace(holder.id, pid=4711)
    story.asked = [
        msgspec.structs.replace(one, whom=stranger, answerer=stranger, stranger="downloader")
        for one in story.asked[:1]
    ]
    story.processes[-1].rests(story.now)
    del story.calls[-1]
    story.run(60)
    return story


def _locked() -> tuple[RayStory, StoryProcess]:
    """The driver has called two rollouts, which wait for a lock of the first one; that one."""
    story, main, (holder, *waiters) = rollouts(3)
    for one in waiters:
        one.begins("generate", story.now, AT_LOCK)
        story.call(main, one, "generate")
        story.asks(one, holder, lock=LOCKED_FILE)
    return story, holder


def _works(story: RayStory, holder: StoryProcess) -> None:
    holder.begins("generate", story.now, SLEEPS)
    story.call(story.processes[0], holder, "generate")
