"""Facts from Ray: which call waits for which, and which process runs it.

A stack shows that a process waits in ``ray.get``; the unfinished calls that its own call has made
show for which. If it made none, it was given the object by its caller, so the caller's unfinished
calls count.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from ray_sentinel.evidence.movement import STILL, Movement, settled
from ray_sentinel.evidence.stacks.frames.names import last_name
from ray_sentinel.evidence.stacks.tree import place_of
from ray_sentinel.model.connections import AwaitedAnswer
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.ray_calls import RayCall, RayCalls
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.answers import JobAnswers, may_await
from ray_sentinel.waitgraph.awaited_row import AwaitedRow
from ray_sentinel.waitgraph.engine_work import EngineWork
from ray_sentinel.waitgraph.facts import (
    MAY_COME_FROM,
    QUEUED,
    RUNS_IN,
    UNCALLED,
    Broken,
    Elsewhere,
    Moves,
    Mute,
    WaitFact,
    WaitNode,
    WaitsFor,
    call_node,
    process_node,
)
from ray_sentinel.waitgraph.job_processes import JobProcesses, creation_id
from ray_sentinel.waitgraph.operations import JobOperations
from ray_sentinel.waitgraph.process_stacks import (
    BLOCKED,
    GROUP_WAIT,
    at_device,
    broken,
    ray_wait,
    waits_for_threads,
)
from ray_sentinel.waitgraph.unmet import RAY, UnmetNeeds, call_waits
from ray_sentinel.waitgraph.wakers import AwaitedWakers

STACK = "stack"
OWN_WAIT = "awaits something of its own"
"""What is known of an actor whose main thread rests amid a call."""
NOT_SEEN = "its stack could not be taken"
REPORTING_SECONDS = 5.0
"""Seconds after a change within which the control store has been told of it, even on a busy machine
(``task_events_report_interval_ms``: 1 s)."""
CLOCKS = 1.0
"""Seconds by which the times of Ray's calls and those of the kernel's connections may differ."""


class RayFacts:
    """Translates one look at Ray and at the stacks of its processes into facts."""

    def __init__(
        self,
        ray: RayCalls,
        started: Mapping[tuple[str, int], ProcessId],
        stacks: Mapping[ProcessId, StackFact],
        movements: Mapping[ProcessId, Movement],
        groups: Mapping[ProcessId, str] | None = None,
        woken: Collection[ProcessId] = (),
        engines: Mapping[ProcessId, EngineWork] | None = None,
        answers: Iterable[AwaitedAnswer] = (),
        serving: Iterable[ProcessId] = (),
    ) -> None:
        """``started`` is as in ``JobProcesses``; ``groups`` are the process groups of those that
        are ranks; ``woken`` are the processes in which a thread that stood in one place was put on
        a CPU meanwhile; ``engines`` are the inference engines below processes; ``answers`` are
        those that processes await from each other; ``serving`` are drivers that listen for
        requests."""
        self.processes = JobProcesses(ray, started)
        self._engines = {process_node(p): work for p, work in (engines or {}).items()}
        self.names: dict[WaitNode, str] = {
            node: found.label for node, found in self.processes.known.items()
        }
        """What people call the nodes."""
        self.ray = ray
        self.stacks = {process_node(process): fact for process, fact in stacks.items()}
        self.movements = {process_node(p): movement for p, movement in movements.items()}
        self._woken = {process_node(process) for process in woken}
        self._serving = {process_node(process) for process in serving}
        self._calls = {call.id: call for call in ray.calls}
        self._unmet = UnmetNeeds(ray, self.names)
        self._children: dict[str, list[RayCall]] = defaultdict(list)
        for call in sorted(ray.calls, key=_made_at):
            if call.kind != "driver":  # those of all jobs share one parent: nobody
                self._children[call.parent].append(call)
        self._runs: dict[WaitNode, list[RayCall]] = defaultdict(list)
        self._given: dict[WaitNode, list[RayCall]] = defaultdict(list)
        """The calls that a process runs, or that wait for it to run them."""
        self._runner: dict[str, WaitNode] = {}
        for call in ray.calls:
            if (node := self.processes.of(call)) is not None:
                self._runner[call.id] = node
                self._given[node].append(call)
                if call.state == "running":
                    self._runs[node].append(call)
        answers = tuple(answers)
        of_now = (self._timed(one) for one in answers if self._is_of_now(one, groups or {}))
        self._answers = JobAnswers(of_now, self._answerer)
        self._of_strangers = {process_node(one.who): one for one in answers if one.stranger}
        self._place: dict[str, int] = {}
        """The place of each call among the calls of its parent."""
        self._own: dict[tuple[str, WaitNode | None], list[int]] = defaultdict(list)
        """The places of a process' own calls among the calls of one parent."""
        for parent, calls in self._children.items():
            for place, call in enumerate(calls):
                self._place[call.id] = place
                self._own[parent, self._runner.get(call.id)].append(place)
        self._rows: dict[tuple[str, str], AwaitedRow] = {}
        moved = {node for node, how in self.movements.items() if how == "moved"}
        found = JobOperations(
            self.processes.known,
            self.stacks,
            moved,
            groups or {},
            self._called_by,
            self._called_beside,
        )
        self.operations = tuple(found.find())
        self._wakers = AwaitedWakers(tuple(self._seen()), ray.wakers, self)
        self.names |= self._wakers.names
        self.facts = self._wakers.facts

    def _seen(self) -> Iterator[WaitFact]:
        for call in self.ray.calls:
            self.names.setdefault(call_node(call.id), call.name or call.kind)
            yield from self._of_call(call)
        for node in self.processes.known:
            yield from self._of_process(node)
        yield from self._of_operations()
        yield from self._of_untold()
        yield from self._unmet.of_builds()

    def runs(self, node: WaitNode) -> tuple[RayCall, ...]:
        """The calls that a process executes."""
        return tuple(self._runs.get(node, ()))

    def given(self, node: WaitNode) -> tuple[RayCall, ...]:
        """The calls that a process executes, then those that wait for it to execute them."""
        made = (call for call in self._given.get(node, ()) if call.kind != "driver")
        return tuple(sorted(made, key=lambda call: (call.state != "running", _made_at(call))))

    def functions(self, node: WaitNode) -> tuple[str, ...]:
        """The functions on a process's stack, outermost first; empty if unknown."""
        fact = self.stacks.get(node)
        return (
            tuple(last_name(place.partition(" (")[0]) for place in fact.signature) if fact else ()
        )

    def maker(self, call: RayCall) -> str:
        """The name of the process that made a call; empty if unknown."""
        node = self._runner.get(call.parent)
        return self.names.get(node, "") if node is not None else ""

    def asked_in(self, node: WaitNode) -> tuple[str, ...]:
        """The calls in which processes await an answer from a process; an empty name for a
        driver."""
        found: dict[str, None] = {}
        for who in self._answers.askers(node):
            drives = self.processes.known[who].role == "driver"
            found |= dict.fromkeys([""] if drives else [call.name for call in self.runs(who)])
        found |= dict.fromkeys(call.name for call in self._wakers.waits_of.get(node, ()))
        return tuple(found)

    def asker(self, node: WaitNode) -> str:
        """The name of a process that awaits an answer from this one; empty if there is none."""
        return next((self.names.get(who, "") for who in self._answers.askers(node)), "")

    def asked_since(self, node: WaitNode) -> float | None:
        """Since when an answer from a process is awaited, in Unix time; None if none is."""
        return self._answers.since(node)

    def goes_round(self, node: WaitNode) -> StackFact | None:
        """The stack of a process that was on a CPU, and in one function, at every look; None for
        any other. A long computing call may look like this, and so does one that never ends. A
        process that waits for its device is on a CPU at one place while it asks the device again
        and again."""
        fact = self.stacks.get(node)
        if fact is None or not fact.active:
            return None
        return fact if self._movement(node, fact) in STILL else None

    def waits_for_device(self, node: WaitNode) -> bool:
        """Whether a process waits for its device."""
        fact = self.stacks.get(node)
        return fact is not None and at_device(fact)

    def _has_moved(self, node: WaitNode, fact: StackFact) -> bool:
        """Whether a process moved between the looks. At a device, time on a CPU tells nothing."""
        woken = node in self._woken and not at_device(fact)
        return woken or self._movement(node, fact) == "moved"

    def _movement(self, node: WaitNode, fact: StackFact) -> Movement:
        """How a process moved. At a device, another line of one function is another wait."""
        return settled(self.movements.get(node, "unknown"), may_loop=not at_device(fact))

    def moves(self, node: WaitNode, waiters: Collection[WaitNode] = ()) -> int | None:
        """A number that changes whenever what is awaited has moved: the build of an environment
        (``UnmetNeeds.moves``), a thread that the kernel blocks and agents do not watch, or the
        event loop of an actor whose coroutines await something of their own. None for any other
        node, and if it cannot be known. ``waiters`` wait for it, and bring it nothing."""
        fact = self.stacks.get(node)
        if fact is None:
            return self._unmet.moves(node)
        if fact.state == BLOCKED:
            return self.thread_switches(node)
        if fact.activity == "idle" and (asker := self._wakers.resting.get(node)) is not None:
            return self.moves(asker, waiters)
        if fact.activity != "idle" or not self._works(node):
            return None
        # What they await may be made by a call elsewhere, or brought by some thread of the job.
        may_bring = (
            call
            for parent, low, high in self._handed_on(node)
            for call in self._children[parent][low:high]
            if self._runner.get(call.id) not in waiters
        )
        another = any(may_bring) or self.processes.known[node].job in self._jobs_at_work
        return None if another else self.thread_switches(node)

    @functools.cached_property
    def _jobs_at_work(self) -> frozenset[str]:
        """The jobs in which user code runs that no known call shows: in an actor without a call,
        or in a further thread of any process."""
        return frozenset(
            known.job
            for node, known in self.processes.known.items()
            if self.works_untold(node) or self._works_beside(node)
        )

    def _works_beside(self, node: WaitNode) -> bool:
        fact = self.stacks.get(node)
        return fact is not None and fact.users_code_beside

    def thread_switches(self, node: WaitNode) -> int | None:
        """How often the thread that a process's facts are from has been put on a CPU; None if
        unknown, or if agents watch it all the time, as they do the main threads of Ray's
        processes."""
        fact = self.stacks.get(node)
        if fact is None:
            return None
        watched = fact.tid == fact.process.pid and not self.processes.known[node].inner
        return None if watched else fact.switches

    def works_untold(self, node: WaitNode) -> bool:
        """Whether an actor runs user code although no call of it is known. Ray's control store does
        not learn of calls made without task events, such as those of Ray Serve."""
        fact = self.stacks.get(node)
        if fact is None or not self.processes.known[node].actor or self._given.get(node):
            return False
        return fact.users_code and fact.activity != "idle" and not ray_wait(fact)

    def may_be_woken(self, node: WaitNode) -> bool:
        """Whether an actor waits in its calls, and not for any that it has made."""
        fact = self.stacks.get(node)
        known = self.processes.known[node]
        return (
            fact is not None
            and fact.activity in ("idle", "lock-wait")
            and bool(known.actor and self._runs.get(node))
            and not self._made(node)
        )

    def is_at_rest(self, node: WaitNode) -> bool:
        """Whether an actor runs nothing, and nothing waits for it to run it."""
        fact = self.stacks.get(node)
        rests = fact is not None and fact.activity == "idle" and not fact.users_code
        return rests and bool(self.processes.known[node].actor) and not self._given.get(node)

    def node_of(self, caller: str) -> WaitNode | None:
        """The process of an actor, or the one that runs a task or drives a job, by Ray's id; None
        if it is not known."""
        return self.processes.of_actor(caller) or self._runner.get(caller)

    def waits_for_wakers(self, node: WaitNode) -> bool:
        """Whether an actor waits to be called by certain processes."""
        return node in self._wakers.waiting

    def _of_untold(self) -> Iterator[WaitsFor]:
        """Where an object of unknown origin may come from."""
        for node, known in self.processes.known.items():
            unknown = WaitNode("resource", f"{_OBJECT_KEY}{known.job}")
            if unknown in self.names and self.works_untold(node):
                yield WaitsFor(who=unknown, awaited=node, how=MAY_COME_FROM, witness=STACK)

    def _of_call(self, call: RayCall) -> Iterator[WaitFact]:
        runner = self._runner.get(call.id)
        if call.kind == "driver":
            return  # nobody waits for it
        if call.state == "running":
            if runner is not None:
                yield call_waits(call, runner, RUNS_IN)
        elif call.state == "queued" and runner is not None:
            yield call_waits(call, runner, QUEUED)
        elif call.state == "arguments":
            row = self._row("begun", call.parent)
            fact = call_waits(call, call_node(call.id), "needs the result of")
            yield from row.awaited(fact, 0, len(row))
        elif creation := self._creation(call):
            yield call_waits(call, call_node(creation), "needs its actor")
        else:
            yield self._unmet.of(call)

    def _creation(self, call: RayCall) -> str:
        """The id of the unfinished call that makes a call's actor; empty if there is none."""
        made_by = creation_id(call.actor)
        return made_by if call.kind == "actor-task" and made_by in self._calls else ""

    def _of_process(self, node: WaitNode) -> Iterator[WaitFact]:
        fact = self.stacks.get(node)
        if fact is not None and (failed := broken(fact)):
            yield Broken(process=node, kind=failed[0], why=failed[1], witness=fact.tool)
        elif fact is not None and (how := ray_wait(fact)):
            yield from self._in_ray(node, how)
        elif asked := tuple(self._asked_for(node, fact)):
            yield from asked
        elif of_engine := self._of_engine(node, fact):
            yield from of_engine
        elif fact is None:
            yield Mute(process=node, why=NOT_SEEN, witness=STACK)
        elif not fact.signature and fact.error:
            yield Mute(process=node, why=fact.error, witness=fact.tool)
        elif fact.activity == "idle":
            yield from self._at_rest(node, fact)
        elif waits_for_threads(fact) and (awaited := self._made(node)):
            yield from self._for_calls(node, awaited, "await")
        elif not fact.waits_for_others:
            place = place_of(fact)
            doing = self._doing(node, fact, place)
            if fact.users_place not in ("", place):  # a library's line tells people little
                place = f"{place}, called in {fact.users_place}"
            yield Elsewhere(process=node, place=place, doing=doing, witness=fact.tool)
            works = bool(fact.active) and not at_device(fact)
            if works or self._has_moved(node, fact):
                yield Moves(process=node, witness=fact.tool)

    def _doing(self, node: WaitNode, fact: StackFact, place: str) -> str:
        """What a process does at a place, in short. A lock that it waits for may be held by a
        process that is not of the job."""
        lock = self._of_strangers.get(node)
        if lock is not None and self._stands_at_lock(node):
            return f"waiting for the lock on {lock.lock} of {lock.stranger}, pid {lock.whom.pid},"
        return fact.label if place not in fact.label else "running" if fact.active else ""

    def _is_of_now(self, one: AwaitedAnswer, ranks: Collection[ProcessId]) -> bool:
        """Whether an answer was requested by what the asking process runs now: earlier requests are
        never answered any more. The tensors that ranks send each other are never answered."""
        who, whom = process_node(one.who), process_node(one.whom)
        if who not in self.processes.known or whom not in self.processes.known:
            return False  # it ended, or its stack could not be taken
        if one.lock:
            return self._stands_at_lock(who)
        runs = self._runs.get(who, ())
        begun = min((call.since for call in runs if call.since is not None), default=one.since)
        return begun - CLOCKS <= one.since and not (one.asker in ranks and one.answerer in ranks)

    def _stands_at_lock(self, node: WaitNode) -> bool:
        """Whether a process still waits for the lock for which it was seen to wait."""
        fact = self.stacks.get(node)
        return fact is not None and may_await(fact, lock=True) and not self._has_moved(node, fact)

    def _timed(self, one: AwaitedAnswer) -> AwaitedAnswer:
        """An awaited answer with its time. Since when a lock is awaited is not known: the waiting
        call tells how long at most, and it is late when the call is."""
        begun = [
            call.since
            for call in self._runs.get(process_node(one.who), ())
            if call.since is not None and call.kind != "driver"
        ]
        return msgspec.structs.replace(one, since=max(begun)) if one.lock and begun else one

    def _answerer(self, one: AwaitedAnswer) -> WaitNode:
        """Who is waited for: the process that was asked, unless an engine shows more."""
        above = process_node(one.whom)
        if one.answerer == one.whom or above in self._engines:
            return above
        node = self.processes.add_below(one.whom, one.answerer)
        self.names.setdefault(node, self.processes.known[node].label)
        return node

    def _works(self, node: WaitNode) -> bool:
        """Whether a process runs a call, or an answer from it is awaited."""
        return bool(self._runs.get(node) or self._answers.askers(node))

    def _asked_for(self, node: WaitNode, fact: StackFact | None) -> Iterator[WaitsFor]:
        """The locks on files that a process awaits, or else the answers, where it waits for no call
        that it has made."""
        locks = tuple(self._at_lock(node))
        yield from locks
        if not locks and self._works(node) and may_await(fact) and not self._made(node):
            yield from self._answers.awaited(node)

    def _at_lock(self, node: WaitNode) -> Iterator[WaitsFor]:
        """The locks on files that a process waits for, and who holds them."""
        for file, wait in self._answers.locks(node):
            if wait.awaited.kind == "resource":
                self.names[wait.awaited] = f"the lock on {file}"
            yield wait

    def _of_engine(self, node: WaitNode, fact: StackFact | None) -> tuple[WaitFact, ...]:
        """The facts about a process that works, and has passed its work only to the engine below
        it."""
        work = self._engines.get(node)
        if work is None or not self._works(node) or self._made(node):
            return ()
        return tuple(work.facts(node, fact))

    def engine(self, node: WaitNode) -> str:
        """The hanging engine that a process waits for; empty if there is none."""
        work = self._engines.get(node)
        hangs = work is not None and work.still and self._of_engine(node, self.stacks.get(node))
        return work.name if work is not None and hangs else ""

    def _at_rest(self, node: WaitNode, fact: StackFact) -> Iterator[WaitFact]:
        """What an actor with an idle main thread waits for. It is idle between calls, and while
        other threads or the event loop run calls."""
        if driver := self._uncalled(node):
            yield WaitsFor(who=node, awaited=driver, how=UNCALLED, witness=RAY)
        elif self._in_transit(node):
            yield Moves(process=node, witness=RAY)
        elif awaited := self._made(node):
            yield from self._for_calls(node, awaited, "await")
        elif self._works(node) and not self._waits_for_outsiders(node, fact):
            kept = not self._runs.get(node) and self._answers.only_locks(node)
            doing = "resting without releasing it" if kept else OWN_WAIT
            yield Elsewhere(process=node, place="", doing=doing, witness=fact.tool)

    def _waits_for_outsiders(self, node: WaitNode, fact: StackFact) -> bool:
        """Whether an idle driver waits for somebody outside the job: it runs no program, like the
        kernel of a notebook, whoever starts that, or an interpreter at its prompt, or it serves
        requests."""
        known = self.processes.known[node]
        own = fact.users_code and fact.helper != "tool" and node not in self._serving
        return not known.actor and not known.inner and not own

    def _uncalled(self, node: WaitNode) -> WaitNode | None:
        """The driver of an actor that nothing is requested of, if the driver itself waits for no
        call. If it does, the actor is idle because of what the driver waits for."""
        known = self.processes.known[node]
        driver = self.processes.driver_of(known.job)
        if not known.actor or self._given.get(node) or driver is None or self._works(node):
            return None
        fact = self.stacks.get(driver)
        if fact is None or not fact.signature or ray_wait(fact):
            return None
        in_loop = fact.activity == "idle" or waits_for_threads(fact)
        return None if in_loop and self._made(driver) else driver

    def _in_transit(self, node: WaitNode) -> bool:
        """Whether all calls of an idle process are so young that it may just have ended them, or be
        about to begin them: workers report calls to Ray's store once a second."""
        return not self._answers.askers(node) and all(
            call.since is not None and self.ray.at - call.since < REPORTING_SECONDS
            for call in self._given.get(node, ())
        )

    def _in_ray(self, node: WaitNode, how: str) -> Iterator[WaitFact]:
        """What a process in one of Ray's waits is waiting for."""
        groups = self._row("groups", self.processes.known[node].job)
        wait = WaitsFor(who=node, awaited=node, how=how, any_of=how == "ray.wait", witness=STACK)
        if how == GROUP_WAIT:
            yield from groups.awaited(wait, 0, len(groups))
        elif made := self._made(node):
            yield from self._for_calls(node, made, how)
        elif handed_on := self._handed_on(node):
            for parent, low, high in handed_on:
                yield from self._row("calls", parent).awaited(wait, low, high)
        elif len(groups):
            # ``PlacementGroup.ready`` gives an object that no call makes.
            yield from groups.awaited(msgspec.structs.replace(wait, any_of=False), 0, len(groups))
        else:
            unknown = WaitNode("resource", f"{_OBJECT_KEY}{self.processes.known[node].job}")
            self.names[unknown] = "an object whose maker is not known"
            yield msgspec.structs.replace(wait, awaited=unknown, any_of=False)

    def _row(self, what: str, of: str) -> AwaitedRow:
        """All "calls" of a parent, those that have "begun", or the "groups" of a job."""
        if (row := self._rows.get((what, of))) is None:
            items = (
                [(self._unmet.group(one.id), one.since) for one in self.ray.groups if one.job == of]
                if what == "groups"
                else [
                    (call_node(call.id), call.made if what == "calls" else None)
                    for call in self._children.get(of, ())
                    if what == "calls" or call.state != "arguments"
                ]
            )
            row = self._rows[what, of] = AwaitedRow(f"{what} of {of}", items)
        return row

    def _for_calls(self, who: WaitNode, awaited: list[RayCall], how: str) -> Iterator[WaitsFor]:
        for call in awaited:
            yield WaitsFor(
                who=who,
                awaited=call_node(call.id),
                how=how,
                since=call.made,
                any_of=how == "ray.wait",
                witness=STACK,
            )

    def _made(self, node: WaitNode) -> list[RayCall]:
        """The unfinished calls that a process has made.

        Those that an actor makes in a thread or a coroutine of its own have its creation as parent.
        """
        parents = [call.id for call in self._runs.get(node, ())]
        if actor := self.processes.known[node].actor:
            parents.append(creation_id(actor))
        return [
            call
            for parent in dict.fromkeys(parents)
            for call in self._children.get(parent, ())
            if call.kind != "actor-creation"  # nobody gets its result
        ]

    def _handed_on(self, node: WaitNode) -> list[tuple[str, int, int]]:
        """The unfinished calls whose results may have been given to a process: the nearest ones
        that its callers made to others before they called it. Each entry is the id of a parent and
        a range of its calls."""
        ends: dict[str, int] = {}
        callers: dict[str, set[int]] = defaultdict(set)
        for call in self._runs.get(node, ()):
            seen, parent = {call.id}, call.parent
            while parent not in seen:
                end = bisect_right(self._children[parent], _made_at(call), key=_made_at)
                own = bisect_left(self._own.get((parent, node), ()), end)
                own += sum(place < end for place in callers[parent])
                if end > own or parent not in self._calls:
                    ends[parent] = max(end, ends.get(parent, 0))
                    break
                seen.add(parent)
                caller = self._calls[parent]
                if caller.kind == "driver":
                    break  # nobody has called it
                parent = caller.parent
                if self._runner.get(caller.id) != node:
                    callers[parent].add(self._place[caller.id])
        return [
            (parent, low, high)
            for parent, end in ends.items()
            for low, high in _between({*self._own.get((parent, node), ()), *callers[parent]}, end)
        ]

    def _of_operations(self) -> Iterator[WaitFact]:
        """The facts about processes in collectives and transfers, and about those that have not
        come to them."""
        for operation in self.operations:
            self.names[operation.node] = operation.text
            yield from operation.facts(self.stacks)

    def _called_beside(self, nodes: Iterable[WaitNode]) -> Iterator[WaitNode]:
        """The processes that are to run the unfinished calls of the callers of some processes."""
        callers = dict.fromkeys(c.parent for node in nodes for c in self._runs.get(node, ()))
        runners = (self._runner.get(c.id) for one in callers for c in self._children.get(one, ()))
        return (runner for runner in runners if runner is not None)

    def _called_by(self, node: WaitNode) -> Iterator[WaitNode]:
        """The processes that are to run the unfinished calls that a process has made."""
        runners = (self._runner.get(call.id) for call in self._made(node))
        return (runner for runner in runners if runner is not None)


def _made_at(call: RayCall) -> float:
    return call.made or 0.0


def _between(left_out: set[int], end: int) -> Iterator[tuple[int, int]]:
    """The ranges from 0 to ``end`` without certain places.

    >>> list(_between({2, 3, 7}, 6))
    [(0, 2), (4, 6)]
    """
    low = 0
    for place in sorted(one for one in left_out if one < end):
        if low < place:
            yield low, place
        low = place + 1
    if low < end:
        yield low, end


_OBJECT_KEY = "an object of "
