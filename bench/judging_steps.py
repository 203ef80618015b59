"""The steps of judging that can be switched off one by one, and what each of them does.

``ablation`` switches them off. A step is a function, or what it does with one kind of input. It is
replaced where it is looked up, so a function that two modules import is a step in each of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, NamedTuple

from ray_sentinel.evidence.stacks.compare import function_of
from ray_sentinel.waitgraph.stacks import StacksJudgement


class Step(NamedTuple):
    """One step of judging."""

    at: str
    """Where it is, as "module:name"."""
    off: Callable[[Any], Any]
    """What stands there while it is off, made of what stands there otherwise."""
    what: str
    """What it does, or says, for people."""
    part: bool = False
    """Whether it is only a part of what is named."""
    used_in: str = ""
    """The function that uses it, if it is none itself."""
    name: str = ""
    room: str = ""


def gives(value: Any) -> Callable[[Any], Any]:
    """Off, it gives this, whatever it is given."""

    def off(real: Any) -> Any:
        def given(*_: Any, **__: Any) -> Any:
            return copy.copy(value)

        return property(given) if isinstance(real, (property, cached_property)) else given

    # Where nothing is returned, something is done.
    return _noticed(off, lambda answer, _: value is None is answer or answer != value)


def passes(place: int) -> Callable[[Any], Any]:
    """Off, it gives its argument at this place; a method's first is its object."""
    return _noticed(
        lambda real: wraps(real)(lambda *given, **_: given[place]),
        lambda answer, given: answer != given[place],
    )


def _noticed(
    off: Callable[[Any], Any], notices: Callable[[Any, tuple[Any, ...]], bool]
) -> Callable[[Any], Any]:
    """With ``off.notices``: whether an answer, to these arguments, differs from that while off."""
    vars(off)["notices"] = notices
    return off


def is_(value: Any) -> Callable[[Any], Any]:
    """Off, this value stands in place of a constant."""
    return lambda real: value


def keeps(keep: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Off, only some of what it gives are given."""

    def off(real: Any) -> Any:
        return wraps(real)(lambda *given, **told: filter(keep, real(*given, **told)))

    return _noticed(off, lambda item, _: not keep(item))


def _not(weight: str) -> Callable[[Any], Any]:
    return keeps(lambda supposed: supposed.weight != weight or not supposed.away)


def _without_fault(fault: str) -> Callable[[Any], Any]:
    """The roots of RAS, without those of one kind of proof."""

    def off(real: Any) -> Any:
        def roots(self: Any) -> Any:
            found, young = real(self)
            found.pop(fault, None)
            return found, young - {fault}

        return roots

    return off


def _ballots(*kept: int) -> Callable[[Any], Any]:
    return lambda real: lambda calls, *asked: real(calls, *(asked[at] for at in kept))


_W = "ray_sentinel.waitgraph."
_E = "ray_sentinel.evidence."
_V = "ray_sentinel.engine.verdicts."
_S, _SV = f"{_W}stacks:", f"{_W}stacks:_StacksVerdict."
_R, _RC = f"{_W}recorder:", f"{_W}recorder_culprits:Reasoning."
_RF = f"{_W}recorder_facts:RecorderWaits."
_FR = f"{_E}flight_recorder."
_C = f"{_FR}circles:Circles."
_WT = f"{_FR}waits:Waits."
_RAS, _RASF = f"{_W}ras:_RasVerdict.", f"{_W}ras_facts:RasWaits."
_AL = f"{_E}alignment:"
_SU, _VE, _AB = f"{_V}suspects:", f"{_V}verdict:", f"{_V}abstain:"
_FE, _EX = f"{_V}first_exits:", "ray_sentinel.engine.rules.rank_exited:"
_RY, _UN = f"{_W}ray_calls:RayFacts.", f"{_W}unmet:UnmetNeeds."
_OP = f"{_W}operations:JobOperations."
_UNKNOWN = StacksJudgement(kind="unknown", strength=0.1)

_SUPPOSED = f"{_SV}suppositions"
_ROOMS: dict[str, dict[str, Step]] = {
    "Stacks: who may wait for whom": {
        "stopped": Step(_SUPPOSED, _not("rank-stopped"), "a rank is stopped", True),
        "GIL": Step(_SUPPOSED, _not("gil-held"), "a rank keeps its GIL", True),
        "kernel": Step(_SUPPOSED, _not("kernel-blocked"), "a rank is blocked in the kernel", True),
        "elsewhere": Step(_SUPPOSED, _not("elsewhere"), "others wait, it is elsewhere", True),
        "unknown code": Step(
            _SUPPOSED, _not("unknown code"), "others wait, it is in code that no table knows", True
        ),
        "may wait": Step(_SUPPOSED, _not("may wait"), "others may wait, it does not", True),
        "devices": Step(
            f"{_SV}_devices",
            lambda real: lambda self: real(self)._replace(away=[]),
            "a device runs something else, or nothing",
        ),
        "hidden": Step(
            f"{_SV}_beside_those_who_may_wait",
            _not("hidden"),
            "a few wait, and all others stand where a collective may be hidden",
            True,
        ),
        "may not wait": Step(
            f"{_SV}_beside_those_who_may_wait", _not("may not wait"), "a few may not wait", True
        ),
        "past the loop": Step(
            f"{_SV}_past_the_loop", gives(()), "one has left a loop in which all others are"
        ),
        "another call": Step(
            f"{_SV}_other_calls", _not("another call"), "all wait, one in another call", True
        ),
        "another place": Step(
            f"{_SV}_other_calls", _not("another place"), "the same call at another place", True
        ),
        "crowd: exact": Step(
            f"{_S}_exact",
            lambda real: lambda stand: tuple(map(function_of, stand.fact.signature)),
            "most are at one line",
        ),
        "crowd: activity": Step(
            f"{_S}_activity",
            lambda real: lambda stand: stand.fact.signature,
            "most do the same, or are in one function",
        ),
        "cut short": Step(
            f"{_S}_is_cut_short", gives(False), "a stack without its native frames is the same"
        ),
        "devices alike": Step(
            f"{_S}_waits_alike", gives(False), "another line of a wait for the device is the same"
        ),
    },
    "Stacks: what is seen of one, and why nobody is named": {
        "lasts": Step(
            f"{_W}stack_facts:Stand.lasts", gives(True), "a defect must be seen more than once"
        ),
        "gone": Step(f"{_W}stack_facts:Stand.gone", gives(False), "a process has ended meanwhile"),
        "rooted": Step(
            f"{_W}stack_facts:ROOTED",
            is_(frozenset()),
            "a root comes to its call by another way",
            used_in=f"{_W}stack_facts:Stand.call",
        ),
        "transfers": Step(
            f"{_S}TRANSFERS",
            is_(frozenset()),
            "stages are in different transfers",
            used_in=f"{_SV}suppositions",
        ),
        "goes on": Step(
            f"{_W}stack_facts:_goes_on", gives(False), "most that wait have moved between looks"
        ),
        "in place": Step(
            f"{_E}stacks.compare:_in_place", gives(False), "another line of one loop is no movement"
        ),
        "kind of tool": Step(
            f"{_E}stacks.compare:_kind", gives("any"), "looks of like tools are compared"
        ),
        "helpers": Step(f"{_S}_is_helper", gives(False), "launchers and idle workers are no ranks"),
        "older look": Step(
            f"{_S}_newer", passes(1), "the new look, with what only the old one knew"
        ),
        "half is apart": Step(f"{_SV}_not_apart", gives(_UNKNOWN), "why nobody apart is named"),
        "several calls": Step(
            f"{_SV}_several_calls", gives(_UNKNOWN), "why none of several calls is wrong"
        ),
        "outside": Step(f"{_SV}_outside", gives(None), "all do the same, and wait for no rank"),
        "again in Ray": Step(
            f"{_E}stacks.left_loop:_RAY_TASK",
            lambda real: type("Never", (), {"fullmatch": staticmethod(lambda text: None)}),
            "what a task runs may be called over and over",
            used_in=f"{_E}stacks.left_loop:_past",
        ),
        "same statement": Step(
            f"{_E}stacks.left_loop:same_statement", gives(False), "both are in one statement"
        ),
        "conditional": Step(
            f"{_E}stacks.left_loop:is_conditional",
            gives(False),
            "an if may skip a loop",
        ),
    },
    "Recorders: the reasoning": {
        "device stopped": Step(
            f"{_RC}_device_stopped", gives(False), "it has not completed what its peers have"
        ),
        "stands alike": Step(
            f"{_FR}peer_roles:Equals.stand_alike", gives([]), "equals stand at the same point"
        ),
        "outnumbered": Step(
            f"{_RC}_outnumbered", gives(False), "more have not made a call than have"
        ),
        "queued": Step(
            f"{_RC}_behind_what_is_queued", gives(None), "it has not made what others have queued"
        ),
        "held back": Step(
            f"{_RC}_held_back", gives(None), "it stopped earlier than its equals, behind another"
        ),
        "circle": Step(f"{_RC}_circle", gives(None), "one of those in a circle made a wrong call"),
        "own operation": Step(
            f"{_RC}_own_operation", gives(False), "it is stuck in an operation of its own"
        ),
        "may have others": Step(
            f"{_RC}_may_have_others", gives(False), "others may be in an operation unseen"
        ),
        "silent": Step(f"{_RC}_silent", gives(None), "it left no dump, and nothing else explains"),
        "idle laggards": Step(
            f"{_RC}_idle_laggards", gives(None), "a device stopped, and nobody waits for it"
        ),
        "out of turn": Step(
            f"{_RC}_out_of_turn", gives(None), "its call was too early, by gloo's dumps"
        ),
        "launching": Step(f"{_RF}_launching", gives(""), "it is inside the launch of its call"),
        "called otherwise, all": Step(
            f"{_R}unlike", gives({}), "a call unlike its peers', of jobs that moved or waited"
        ),
        "moving": Step(f"{_R}moving", gives(""), "dumps of different moments"),
        "earlier run": Step(f"{_R}left_over", gives({}), "a dump that an earlier run has left"),
        "dumped too soon": Step(
            f"{_R}dumped_too_soon", gives({}), "its dump is older than its peers', and it went on"
        ),
        "moved since": Step(f"{_R}moved_since", gives([]), "it went on since earlier dumps"),
        "too young": Step(f"{_R}why_too_young", gives(""), "no wait is older than usual"),
        "interval": Step(f"{_FR}motion:_interval", gives(0.0), "how seldom a call is made"),
        "standing": Step(
            f"{_R}_STANDING",
            is_(()),
            "so many at once wait for something outside; gloo is blind",
            used_in=f"{_R}_conclude",
        ),
        "acquit": Step(
            f"{_R}_acquit_the_standing",
            lambda real: lambda world, findings: findings.culprits.clear() or "cannot-tell",
            "a wrong call is wrong, whatever else is doubtful",
        ),
        "strength": Step(f"{_R}_strength", gives(0.9), "how sure it is"),
        "failed: unusual": Step(
            f"{_W}recorder_failed:_unusual", gives({}), "a call that it never made before"
        ),
        "failed: forgets": Step(
            f"{_W}recorder_failed:_forgets", gives(False), "gloo marks failed calls as done"
        ),
    },
    "Recorders: who waits for whom": {
        "evicted": Step(f"{_WT}_evicted", gives([]), "the ring has lost what is pending"),
        "vague": Step(f"{_WT}_vague", gives([]), "a cut dump waits in something"),
        "mixed": Step(f"{_WT}_mixed", gives(frozenset()), "one group for calls and transfers"),
        "telling": Step(
            f"{_WT}_telling", gives(True), "completion elsewhere may say nothing of a rooted call"
        ),
        "not telling": Step(
            f"{_WT}_telling", gives(False), "completion elsewhere shows who is behind", True
        ),
        "contradicting": Step(
            f"{_FR}waits:contradicting", gives([]), "completed another call under its number"
        ),
        "parts of a batch": Step(
            f"{_FR}dump:_with_parts", passes(0), "what a completed batch of calls was made of"
        ),
        "inside differ": Step(
            f"{_FR}waits:differ", gives(False), "calls that differ explain the wait, not the silent"
        ),
    },
    "Recorders: circles, and what equals called": {
        "members": Step(f"{_C}_compare", gives(({}, "")), "its members' calls differ"),
        "not started": Step(
            f"{_C}_not_started", gives({}), "its device has not begun what its peers' have"
        ),
        "lost some": Step(f"{_C}_lost_some", gives(False), "the ring may have lost what holds it"),
        "unlike equals": Step(
            f"{_C}_differs_from_equals", gives({}), "equals called something else there"
        ),
        "strayed": Step(f"{_C}_strayed", gives({}), "it came there after other calls than equals"),
        "out of sequence": Step(
            f"{_C}_out_of_sequence", gives({}), "its counters contradict those of equals"
        ),
        "ballot: like operations": Step(
            f"{_AL}_backed", gives(None), "operations of groups that are alike decide"
        ),
        "ballot: equals": Step(f"{_FR}circles:differing", _ballots(1), "equals decide", True),
        "ballot: like groups": Step(
            f"{_FR}circles:after_same_calls", gives([]), "groups of other stages decide"
        ),
        "in its place": Step(
            f"{_AL}_in_its_place", gives(True), "a call of its own stage alone is no wrong one"
        ),
        "role": Step(
            f"{_FR}peer_roles:Equals._find_role", gives(()), "stages of a pipeline are not equals"
        ),
        "stopped early": Step(
            f"{_FR}peer_roles:Equals.stopped_early", gives([]), "equals went on where it stopped"
        ),
        "habit": Step(
            f"{_W}recorder_failed:out_of_habit", gives(None), "who made a call that it never makes"
        ),
    },
    "NCCL RAS": {
        **{
            f"proof: {fault}": Step(f"{_RAS}_roots", _without_fault(fault), what, True)
            for fault, what in {
                "rank-dead": "a process is dead",
                "rank-unresponsive": "a process does not answer",
                "communicator-error": "a communicator reports an error",
                "remote-error": "a peer's error is reported",
                "collective-mismatch": "other calls than its peers'",
                "not-enqueued": "it has launched fewer",
                "startup-stuck": "it does not come out of the start",
                "left-communicator": "it has left a communicator",
                "rank-unlisted": "the answer leaves it out",
                "cannot-tell": "communicators without details",
            }.items()
        },
        "few": Step(f"{_RAS}_few", gives(True), "those found are the exception"),
        "cannot name": Step(f"{_RAS}_cannot_name", gives(""), "why those behind are not named"),
        "odd in a circle": Step(
            f"{_RAS}_odd_ones",
            lambda real: lambda self, circle: iter((circle,)),
            "who of a circle made other calls",
        ),
        "odd in a communicator": Step(
            f"{_RASF}_state_calls", gives(None), "who made other calls there"
        ),
        "of counts": Step(
            f"{_RAS}_of_counts", gives(("no-mismatch", 0.0)), "nothing differs: does anything move"
        ),
        "unnamed members": Step(
            f"{_RASF}_of_the_unnamed", gives(()), "a rank may be among those not named"
        ),
        "moving": Step(f"{_RASF}_moving", gives(set()), "who was seen going on"),
        "ahead of all": Step(
            f"{_RASF}ahead_of_all", gives(False), "who is ahead may have made one call too many"
        ),
        "sends": Step(
            f"{_RASF}send_to_each_other", gives(False), "those behind may wait for a send of one"
        ),
    },
    "The live judge: what is weighed": {
        "findings": Step(f"{_SU}_from_findings", gives(None), "what rules have proven"),
        "exits": Step(f"{_SU}_from_exits", gives(None), "it left while others wait"),
        "the end": Step(f"{_SU}_from_the_end", gives(None), "it hangs on the way out"),
        "somebody waits": Step(
            f"{_SU}_somebody_waits", gives(True), "an exit counts if somebody waits"
        ),
        "recorder": Step(f"{_SU}_from_recorder", gives(None), "what the recorders say"),
        "RAS": Step(f"{_SU}_from_ras", gives(None), "what RAS says"),
        "alerts": Step(f"{_SU}weigh_alerts", gives(None), "what telemetry says"),
        "stacks": Step(f"{_SU}_from_stacks", gives(None), "what stacks say"),
        "twins": Step(f"{_SU}_without_twins", passes(1), "a side-car has a rank's number"),
        "transfers of gloo": Step(
            f"{_SU}_transfers", gives(False), "gloo's recorder does not show a transfer"
        ),
        "proven apart": Step(
            f"{_SU}_proven", gives(set()), "beside a proven one, others are judged by themselves"
        ),
        "kind: proven": Step(f"{_SU}_proven_kind", gives(None), "the kind that a rule has proven"),
        "kind: keeps GIL": Step(f"{_SU}_keeps_gil", gives(False), "a stack shows a held GIL"),
        "kind: from stack": Step(f"{_SU}_from_stack", gives("host-stuck"), "what its stack does"),
        "kind: device": Step(f"{_SU}device_kind", gives(None), "telemetry says what a device has"),
        "kind: trained": Step(f"{_SU}_trained", gives(False), "has it trained, or does it start"),
        "kind: RAS": Step(f"{_SU}ras_mismatches", gives(set()), "a wrong call, by RAS"),
    },
    "The live judge: name, wait or nobody": {
        "all rest": Step(f"{_VE}_all_rest", gives(False), "all wait for work"),
        "accused by recorder": Step(
            f"{_VE}_accused_by_recorder", gives(set()), "recorders remember what was before a proof"
        ),
        "spared": Step(f"{_VE}_spared", gives(False), "saving, loading, compiling take long"),
        "young": Step(f"{_VE}too_young", gives(False), "it must be seen twice"),
        "joining": Step(f"{_VE}joining", gives(False), "ranks gather at the start"),
        "momentary": Step(
            f"{_VE}MOMENTARY",
            is_(frozenset()),
            "a proof may be of a moment",
            used_in=f"{_VE}_decided",
        ),
        "moves data": Step(
            "ray_sentinel.engine.incidents.case:Case.moves_data", gives(False), "it reads or writes"
        ),
        "all idle": Step(f"{_AB}all_idle", gives(False), "all have nothing to do"),
        "all stand": Step(f"{_AB}_all_stand", gives(False), "all wait, so less silence is enough"),
        "waits": Step(f"{_AB}_waits", gives(False), "who waits is not the one that is slow"),
        "seen outside": Step(
            f"{_AB}_all_seen_outside", gives(False), "all are seen to wait for none of them"
        ),
        "not joined": Step(f"{_AB}_not_joined", gives(""), "who is missing at the start"),
        "last lines": Step(
            "ray_sentinel.engine.incidents.lifecycle:with_last_lines",
            passes(0),
            "culprits' last lines are quoted",
        ),
    },
    "Exits: which was the cause": {
        "all killed": Step(f"{_EX}all_killed", gives(False), "somebody ended the whole job"),
        "ended alone": Step(f"{_EX}ended_alone", gives([]), "one was told to end, others fell"),
        "leavers": Step(f"{_EX}leavers", gives([]), "one left, and the others lost it"),
        "first causes": Step(f"{_EX}first_causes", gives([]), "the first that is no echo"),
        "sent too much": Step(f"{_EX}sent_too_much", gives(None), "all others were overrun"),
        "unannounced": Step(f"{_EX}unannounced", passes(2), "a node's announced end explains it"),
        "gone unreported": Step(
            f"{_FE}_gone_unreported", gives(()), "a leaving node reports nothing of its end"
        ),
        "of its own": Step(f"{_FE}_of_its_own", gives(False), "it gives a reason of its own"),
        "departed": Step(
            "ray_sentinel.engine.engine:note_departed", gives(None), "who left with its node"
        ),
        "gone at": Step(f"{_FE}_gone_at", passes(1), "last words come before the end"),
        "unclear": Step(f"{_FE}is_unclear", gives(False), "a mismatch ends culprits and others"),
        "echo": Step(f"{_FE}is_echo", gives(False), "it says that a peer has gone"),
        "violence": Step(f"{_FE}violence", gives(1), "a killed one was first"),
        "left by itself": Step(f"{_FE}left_by_itself", gives(False), "it ended as it should"),
        "a node is missing": Step(
            f"{_EX}RankExited._a_node_is_missing", gives(False), "a silent node may have gone first"
        ),
        "asked to end": Step(
            f"{_EX}RankExited._asked_to_end", gives(False), "a person ended the job"
        ),
        "raised": Step("ray_sentinel.engine.ray.deaths:raised_in", gives(""), "how a driver ended"),
        "closing lines": Step(
            f"{_V}exits:closing_lines", passes(0), "the error in a program's last output"
        ),
    },
    "Jobs of actors: facts of Ray's calls": {
        "creation": Step(f"{_RY}_creation", gives(""), "a call needs its actor made"),
        "answers": Step(f"{_RY}_asked_for", gives(()), "an answer over a connection is awaited"),
        "answers of now": Step(f"{_RY}_is_of_now", gives(True), "requests of an earlier call"),
        "engine": Step(f"{_RY}_of_engine", gives(()), "an inference engine is below it"),
        "at rest": Step(f"{_RY}_at_rest", gives(()), "what an idle actor waits for"),
        "outsiders": Step(
            f"{_RY}_waits_for_outsiders", gives(False), "a driver waits for its user"
        ),
        "uncalled": Step(f"{_RY}_uncalled", gives(None), "nobody calls it: its driver must"),
        "in transit": Step(f"{_RY}_in_transit", gives(False), "a call has only just ended"),
        "handed on": Step(f"{_RY}_handed_on", gives([]), "objects that its callers gave it"),
        "untold": Step(f"{_RY}_of_untold", gives(()), "calls that Ray does not tell of"),
        "has moved": Step(f"{_RY}_has_moved", gives(False), "it moved between looks"),
        "threads": Step(
            f"{_W}ray_calls:waits_for_threads", gives(False), "calls that its threads have made"
        ),
        "broken": Step(f"{_W}ray_calls:broken", gives(None), "stopped, blocked, GIL held"),
        "moves": Step(f"{_RY}moves", gives(None), "an event loop or a build gets further"),
        "woken": Step(f"{_W}picture:woken", gives(frozenset()), "a thread was put on a CPU"),
        "programs": Step(
            f"{_W}picture:awaiting_programs", passes(0), "programs older than what is awaited"
        ),
        "goes round": Step(f"{_RY}goes_round", gives(None), "on a CPU in one function"),
        "build": Step(f"{_UN}_build", gives(None), "a runtime environment is built"),
        "facts of builds": Step(f"{_UN}of_builds", gives(()), "whether that build moves"),
        "has room": Step(f"{_UN}_has_room", gives(False), "there is room, and no worker"),
        "may be held": Step(f"{_UN}_may_be_held", gives(True), "no node is large enough"),
        "may await": Step(f"{_W}ray_calls:may_await", gives(True), "its stack may await an answer"),
        "locks": Step(f"{_RY}_at_lock", gives(()), "a lock on a file, and who holds it"),
        "at lock": Step(f"{_RY}_stands_at_lock", gives(True), "its stack still stands at a lock"),
        "wakers": Step(
            f"{_W}wakers:AwaitedWakers._add", gives(None), "whose calls ended such waits"
        ),
        "held up": Step(
            f"{_W}wakers:AwaitedWakers._held_up_by", gives(set()), "who waits cannot call the actor"
        ),
        "operations": Step(f"{_RY}_of_operations", gives(()), "actors in collectives"),
        "meeting": Step(f"{_OP}_meeting", gives(()), "actors of several classes in one call"),
        "fellows": Step(f"{_OP}_fellows", gives(()), "a process group of several classes"),
        "called by": Step(f"{_OP}_called_by", gives(()), "actors called by those in a call"),
        "called beside": Step(f"{_OP}_called_beside", gives(()), "ranks called by the same caller"),
        "without a group": Step(
            f"{_OP}_add_those_without_a_group", gives(None), "a member whose group is unknown"
        ),
        "stands complete": Step(
            f"{_OP}_stands_complete", gives(True), "a whole class waits, and none has moved"
        ),
    },
    "The graph": {
        "going on": Step(
            f"{_W}solver:_going_on", gives(set()), "who waits for what moves is not held up"
        ),
        "alike": Step(
            f"{_W}ras_facts:folded",
            lambda real: lambda facts: _each_alone(facts),
            "ranks of which the same is known are one node: 8,192, half of them ahead, in 0.5 s, "
            "not 1.0 s",
        ),
    },
}


def _each_alone(facts: Any) -> Any:
    facts = list(facts)
    nodes = {
        node: None
        for fact in facts
        for name in fact.__struct_fields__
        if getattr(node := getattr(fact, name), "kind", "") == "process"
    }
    return facts, {node: [node] for node in nodes}


STEPS: dict[str, Step] = {
    name: step._replace(name=name, room=room)
    for room, steps in (
        (room, {(f"{room.split(':')[0].lower()}: {name}"): step for name, step in steps.items()})
        for room, steps in _ROOMS.items()
    )
    for name, step in steps.items()
}
"""All steps by their names, in the order in which they are told."""
