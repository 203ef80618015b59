"""Carries out the engine's actions, concurrently and under deadlines; the results are events."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import msgspec
import ray

from ray_sentinel.actors.bundles.bundle import capture_folder, last_capture
from ray_sentinel.actors.bundles.index import (
    Bundles,
    capture_root,
    link_backtraces,
)
from ray_sentinel.actors.bundles.writer import STORE_SECONDS, BundleWriter
from ray_sentinel.actors.coordinator.diagnosing import SeriesDiagnoser
from ray_sentinel.actors.coordinator.fleet import Fleet
from ray_sentinel.actors.coordinator.gathering.agents import Agents, by_node
from ray_sentinel.actors.coordinator.gathering.cluster_dumps import ClusterDumps, DumpSets
from ray_sentinel.actors.coordinator.gathering.cluster_outputs import ANSWER_SECONDS, ClusterOutputs
from ray_sentinel.actors.coordinator.gathering.group_book import GroupBook
from ray_sentinel.actors.coordinator.gathering.job_stacks import gather_look
from ray_sentinel.actors.coordinator.gathering.judged_evidence import DumpEvidence
from ray_sentinel.actors.coordinator.gathering.ras_witness import RasWitness
from ray_sentinel.actors.coordinator.gathering.straggler_looks import StragglerLooks
from ray_sentinel.actors.coordinator.gathering.timed_capture import is_timed
from ray_sentinel.actors.coordinator.ray.calls import ControlStoreCalls
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.messages import (
    CaptureRequest,
    Dump,
    NodeCapture,
    Sampled,
    unpack,
)
from ray_sentinel.actors.raylets import raylet_answers
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.bounded import within
from ray_sentinel.clock import Clock, SteadyClock
from ray_sentinel.config import Config, NotifyConfig
from ray_sentinel.engine import actions, events
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.engine.incidents.asking import capture_seconds, may_be_thorough
from ray_sentinel.engine.incidents.lifecycle import OPEN
from ray_sentinel.engine.ray.long_calls import running_since
from ray_sentinel.errors import UsageError
from ray_sentinel.evidence.stacks.same import fold
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import (
    Incident,
    IncidentState,
    RankLog,
    RankOutput,
    writer_of,
)
from ray_sentinel.model.ray_calls import RayCalls, RayLook
from ray_sentinel.report.contract import incident_dict
from ray_sentinel.supervise.notify.incident_notices import (
    STATES,
    as_of,
    key_of,
    keys_of_past,
    notice_of,
    undelivered,
)
from ray_sentinel.supervise.notify.notices import Notice
from ray_sentinel.supervise.notify.notifier import (
    PATIENCE_SECONDS,
    Notifier,
    apprise_problem,
)

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 3.0
"""Seconds for the stacks of all agents: their own deadline, and the way there and back."""
LATE_SECONDS = 20.0
"""Seconds after the request from which stacks say little about that moment."""
GATHER_SECONDS = 15.0
"""Seconds that a capture may take beyond ``capture.deadline``, to travel and to be written."""
LOOK_SECONDS = 1.0
"""Seconds that the disk has to say which captures an incident has had."""
CLOSE_SECONDS = 1.5
"""Seconds that undelivered notices have at the end."""
LOOKS = 4
"""How many Ray jobs are looked at simultaneously."""
WORKERS = 16
"""Threads for simultaneous requests, and as many for captures: they wait more than they work."""


Harvested = tuple[tuple[RankLog, ...], list[str]]
"""What ranks wrote last, and why parts of it could not be stored."""


class Executor:
    """Called with an action, from any thread; returns at once."""

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        storage: DeploymentStorage,
        incidents: Iterable[Incident] = (),
        clock: Clock | None = None,
        ended: float | None = None,
        agents: Agents | None = None,
    ) -> None:
        """``incidents`` are those of the previous coordinator, which ``ended`` at that time, on
        their clock; ``agents`` are those of ``fleet`` unless given."""
        self.feed: Callable[[AnyEvent], int] = lambda event: 0
        """Where answers go; set by the coordinator."""
        self._clock = clock or SteadyClock()
        self._config = config
        self._fleet = fleet
        self._agents = agents or Agents(fleet)
        self._dumps = ClusterDumps(self._agents)
        self._outputs = ClusterOutputs(self._agents)
        self.groups = GroupBook()
        incidents = tuple(incidents)
        self._stragglers = StragglerLooks(self._dumps, self.groups, self._clock, incidents)
        root = capture_root(storage, config, "incidents")
        self.bundles = Bundles(root, incidents, storage.deployment)
        timed = config.capture.enabled and config.capture.wait_seconds > 0
        self._backtraces = capture_root(storage, config, "backtraces") if timed else None
        self.writer = BundleWriter(self.bundles, self._written_late)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="ray-sentinel-act")
        # Captures take long and must not hold up the rounds of stacks; reports keep their order.
        self._captures = ThreadPoolExecutor(WORKERS, thread_name_prefix="ray-sentinel-capture")
        # They wait for Ray and for all nodes, and must not hold up the stacks of ranks.
        self._looks = ThreadPoolExecutor(LOOKS, thread_name_prefix="ray-sentinel-look")
        # What ranks wrote last is read meanwhile: a capture may take minutes, and pods go.
        self._harvests = ThreadPoolExecutor(WORKERS, thread_name_prefix="ray-sentinel-output")
        self._reports = ThreadPoolExecutor(1, thread_name_prefix="ray-sentinel-report")
        self._lock = threading.Lock()
        self.diagnose = SeriesDiagnoser(config.capture.series_seconds, self._add_diagnosis)
        self.latest: dict[str, Incident] = {}
        """The last published state of every incident about which more may come."""
        self.captures_begun: dict[str, int] = {}
        """The number of the last capture of each of these incidents."""
        self._former = {i.id: i.bundle for i in incidents if i.bundle and i.state in OPEN}
        """Folders of the incidents that the previous coordinator captured, by incident."""
        self._ras = RasWitness(self._agents, self._clock)
        self._notifier = notifier_of(config, self._record_sent)
        self._undelivered: dict[str, tuple[IncidentState, ...]] = {}
        """States that the previous coordinator had no time to announce, by incident."""
        for incident in incidents:
            late = () if ended is None else undelivered(incident, ended - PATIENCE_SECONDS)
            missing = {key_of(msgspec.structs.replace(incident, state=state)) for state in late}
            self._notifier.mark_sent(key for key in keys_of_past(incident) if key not in missing)
            self._undelivered[incident.id] = late

    def send_undelivered(self, incidents: Iterable[Incident]) -> None:
        """Send the notices that the previous coordinator did not deliver before it ended;
        ``incidents`` are as people see them. One that was delivered at the last moment, and not
        recorded, is sent twice."""
        late, self._undelivered = self._undelivered, {}
        for incident in incidents:
            for state in late.get(incident.id, ()):
                self._notify(as_of(incident, state))

    def _notify(self, incident: Incident) -> None:
        self._notifier.notify(notice_of(incident, incident_dict(incident)))

    def __call__(self, action: AnyAction) -> None:
        pools = {
            actions.Capture: self._captures,
            actions.Publish: self._reports,
            actions.LookAtRayJob: self._looks,
            actions.AskEndedCalls: self._looks,
        }
        pools.get(type(action), self._pool).submit(self._guarded, action)

    def _guarded(self, action: AnyAction) -> None:
        try:
            self._do(action)
        except Exception as error:  # an action that fails must not end the watch
            log.exception("%s failed", type(action).__name__)
            if isinstance(action, actions.Capture):
                # The engine waits for a capture's end; it can do without the results of other
                # actions.
                why = f"the capture failed: {type(error).__name__}: {error}"
                done = events.CaptureDone(
                    time=self._clock.now(), incident=action.incident.id, bundle="", problems=(why,)
                )
                self.feed(done)

    def _do(self, action: AnyAction) -> None:
        match action:
            case actions.TakeStacks():
                for _ in range(action.looks):
                    self.feed(self._take_stacks(action))
            case actions.AskRecorder():
                self._ask_recorder(action)
            case actions.AskArrivals():
                self._stragglers.look(action, self.feed)
            case actions.AskRas():
                if (answer := self._ras(action)) is not None:
                    self.feed(answer)
            case actions.ProbeNode():
                self.feed(self._probe(action))
            case actions.LookAtRayJob():
                self.feed(self._look_at_ray_job(action))
            case actions.AskEndedCalls():
                self.feed(self._ask_ended_calls(action))
            case actions.Capture():
                self.feed(self._capture(action))
            case actions.Publish():
                self.publish(action.incident)

    def _take_stacks(self, action: actions.TakeStacks) -> events.StacksTaken:
        asked_at = self._clock.now()

        def late(data: bytes) -> None:
            self._pool.submit(self._feed_late, action, data, asked_at)

        answers, problems = self._agents.ask(
            "sample", by_node(action.ranks), Sampled, SAMPLE_SECONDS, late
        )
        sampled = answers.values()
        return events.StacksTaken(
            time=self._clock.now(),
            incident=action.incident,
            round=action.round,
            facts=tuple(fact for answer in sampled for fact in answer.facts),
            problems=(*problems, *(line for answer in sampled for line in answer.problems)),
        )

    def _feed_late(self, action: actions.TakeStacks, data: bytes, asked_at: float) -> None:
        """Take one node's part of a round that was reported without it: on a busy machine all are
        late."""
        now = self._clock.now()
        if now - asked_at > LATE_SECONDS:
            return
        sampled = unpack(data, Sampled)
        self.feed(
            events.StacksTaken(
                time=now,
                incident=action.incident,
                round=action.round,
                facts=sampled.facts,
                problems=sampled.problems,
                asked_at=asked_at,
            )
        )

    def output_of(self, rank: Rank) -> RankOutput:
        """What a rank wrote last, or why that cannot be had. Blocks, as its node is asked."""
        return self._outputs.of(writer_of(rank))

    def _ask_recorder(self, action: actions.AskRecorder) -> None:
        sets, problems = self._dumps.judged(action.ranks)
        evidence = DumpEvidence.of(action, sets) if sets else None
        self.feed(
            events.RecorderExplained(
                time=self._clock.now(),
                incident=action.incident,
                facts=evidence.explain() if evidence is not None else None,
                problems=tuple(problems),
                judged_from=evidence.kept() if evidence is not None else None,
            )
        )
        # The verdict does not wait for it: of thousands of ranks it takes a second.
        if sets:
            self.groups.add(action.ranks, _main(sets), self._clock.now())

    def _look_at_ray_job(self, action: actions.LookAtRayJob) -> events.RayJobLooked:
        """Look at a Ray job. There is always an answer, because while one is awaited the job is not
        looked at again."""
        try:
            agents = self._fleet.handles()
            look = gather_look(
                ray,
                action.ray_job,
                times=action.times,
                agents=agents,
                deployments=action.deployments,
            )
        except (ray.exceptions.RayError, RuntimeError, OSError) as error:
            log.warning("job %s could not be looked at: %s", action.ray_job, error)
            look = RayLook(calls=RayCalls(), notes=(f"it could not be looked at: {error}",))
        return events.RayJobLooked(time=self._clock.now(), ray_job=action.ray_job, look=look)

    def _ask_ended_calls(self, action: actions.AskEndedCalls) -> events.EndedCallsTold:
        with RayStore(ray.get_runtime_context().gcs_address) as store:
            calls = ControlStoreCalls(store)
            if action.running:
                running = running_since(calls.running(action.ray_job, action.lenders))
                return events.EndedCallsTold(
                    time=self._clock.now(), ray_job=action.ray_job, running=running
                )
            ended, changes = calls.ended(action.ray_job, action.lenders)
        return events.EndedCallsTold(
            time=self._clock.now(), ray_job=action.ray_job, ended=ended, changes=changes
        )

    def _probe(self, action: actions.ProbeNode) -> events.NodeProbed | events.NodeLeft:
        node = self._fleet.nodes().get(action.node_id)
        if node is None:
            now = self._clock.now()
            detail = "Ray lists it as dead"
            return self._fleet.departed(action.node_id, now) or events.NodeProbed(
                time=now, node_id=action.node_id, alive=False, detail=detail
            )
        alive, detail = raylet_answers(node.address, node.port)
        return events.NodeProbed(
            time=self._clock.now(), node_id=action.node_id, alive=alive, detail=detail
        )

    def _capture(self, action: actions.Capture) -> events.CaptureDone:
        settings = self._config.capture
        number = self._next_capture(action.incident)
        harvest = self._harvests.submit(self._harvest, action, number)
        everyone = (*action.suspects, *action.waiters, *action.others)
        seconds = capture_seconds(everyone, settings, thorough=action.thorough) + GATHER_SECONDS
        action = limited(action, settings.max_intrusive)
        if not may_be_thorough(settings):
            action = msgspec.structs.replace(action, thorough=False)
        requests = {
            node: CaptureRequest(
                suspects=_on(node, action.suspects),
                waiters=_on(node, action.waiters),
                others=_on(node, action.others),
                thorough=action.thorough,
                apart=is_timed(action.incident),
            )
            for node in by_node(everyone)
        }
        answers, problems = self._agents.ask("capture", requests, NodeCapture, seconds)
        captured = answers.values()
        files = {name: data for answer in captured for name, data in answer.files.items()}
        if not is_timed(action.incident):
            files = fold(files)  # else each process' file is read by itself
        dumps, dump_problems = self._recorder_files(action)
        files |= dumps
        logs, log_problems = _within(harvest)
        files = {capture_folder(number) + name: data for name, data in files.items()}
        folder, lost = self.writer.store(action.incident, files)
        if folder is not None:
            lost = [*lost, *self._linked(action.incident, folder)]
            self.diagnose(action.incident)
        return events.CaptureDone(
            time=self._clock.now(),
            incident=action.incident.id,
            bundle=str(folder) if folder else "",
            problems=(
                *problems,
                *(line for answer in captured for line in answer.problems),
                *dump_problems,
                *log_problems,
                *lost,
            ),
            logs=logs,
            facts=tuple(fact for answer in captured for fact in answer.facts),
        )

    def _next_capture(self, incident: Incident) -> int:
        """The number of a capture that begins, counted within its incident. All its files have this
        number, whenever they come and whatever other captures there are meanwhile."""
        done = sum(step.state == "captured" for step in incident.history)
        if (folder := self._former.pop(incident.id, "")) and incident.id not in self.captures_begun:
            # This includes captures that were begun and not completed.
            with contextlib.suppress(OSError):  # it hangs, or it is gone
                done = max(done, within(LOOK_SECONDS, partial(last_capture, Path(folder))))
        with self._lock:
            number = max(done, self.captures_begun.get(incident.id, 0)) + 1
            self.captures_begun[incident.id] = number
        return number

    def _harvest(self, action: actions.Capture, number: int) -> Harvested:
        """The last lines of the ranks concerned, stored as soon as they have come."""
        files, logs = self._outputs.gather(action, number)
        if not files:
            return logs, []
        return logs, self.writer.store(action.incident, files, told=False)[1]

    def _linked(self, incident: Incident, folder: Path) -> list[str]:
        root = self._backtraces if is_timed(incident) else None
        return link_backtraces(folder, root) if root is not None else []

    def _recorder_files(self, action: actions.Capture) -> tuple[dict[str, bytes], list[str]]:
        """The recorders of suspects and waiters as they wrote them, and those of all other ranks in
        reduced form: together, the bundle explains what the complete ones would."""
        dumps, problems = self._dumps.raw((*action.suspects, *action.waiters))
        whole = {dump.rank for dump in dumps}
        everyone = (*action.suspects, *action.waiters, *action.others)
        reduced, more = self._dumps.reduced(r for r in everyone if r.id.rank not in whole)
        first = min((*(dump.place for dump in dumps), *reduced), default=0)
        files = {f"flight_recorder/{_dump_name(dump, first)}": dump.data for dump in dumps}
        for place, one in reduced.items():
            stem = _stem(place, first)
            files |= {f"flight_recorder/{stem}{n}.reduced": d for n, d in one.items()}
        return files, [*problems, *(line for line in more if line not in problems)]

    def _add_diagnosis(self, incident: Incident, files: dict[str, bytes]) -> None:
        if not files:
            return
        _, problems = self.writer.store(incident, files, told=False)
        for problem in problems:
            log.warning("incident %s: %s", incident.id, problem)
        with self._lock:
            latest = self.latest.get(incident.id, incident)
        self(actions.Publish(incident=latest))

    def publish(self, incident: Incident) -> None:
        """Write the incident and its report, and send its notice."""
        with self._lock:
            self.latest[incident.id] = incident
        log.info("incident %s is %s: %s", incident.id, incident.state, incident.summary)
        folder = self.writer.publish(incident)
        # People are told within a second or so, even if the disk does not answer.
        named = msgspec.structs.replace(incident, bundle=str(folder)) if folder else incident
        self._notify(named)
        if (kept := self._stragglers.kept(incident)) is not None:
            self.feed(kept)
        self._forget_over()

    def _record_sent(self, notice: Notice) -> None:
        incident = str(notice.details.get("id", ""))
        try:
            self.feed(
                events.NoticeSent(time=self._clock.now(), incident=incident, state=notice.event)
            )
        except Exception:  # what is only for the timeline must not end the sending
            log.exception("incident %s: that it was told is not in its timeline", incident)

    def _written_late(self, incident: Incident, folder: Path) -> None:
        """Called when the disk answers again: the incident, open or over, gets its bundle."""
        log.info("incident %s: its bundle was written late, to %s", incident.id, folder)
        lost = tuple(self._linked(incident, folder))
        now = self._clock.now()
        self.feed(
            events.CaptureDone(time=now, incident=incident.id, bundle=str(folder), problems=lost)
        )
        self.diagnose(incident)

    def close(self) -> None:
        """Write and send what is waiting, within a moment."""
        self.writer.close()
        self._notifier.close(CLOSE_SECONDS)

    def _forget_over(self) -> None:
        with self._lock:
            over = [
                key
                for key, incident in self.latest.items()
                if incident.state not in OPEN and not self.diagnose.awaits(key)
            ]
            for key in over:
                del self.latest[key]
                self.captures_begun.pop(key, None)
        self.bundles.forget(over)
        self.diagnose.forget(over)


def _within(harvest: Future[Harvested]) -> Harvested:
    if not wait((harvest,), ANSWER_SECONDS + STORE_SECONDS + 1.0).done or harvest.cancelled():
        return (), ["what the ranks wrote last has not come in time"]
    if (error := harvest.exception()) is None:
        return harvest.result()
    # What the tools captured must not be lost with it.
    log.error("what the ranks wrote last could not be had", exc_info=error)
    return (), [f"what the ranks wrote last could not be had: {type(error).__name__}: {error}"]


def notifier_of(config: Config, sent: Callable[[Notice], None] = lambda notice: None) -> Notifier:
    """The notifier for the configured receivers; ``sent`` is called with each notice that was
    delivered. Settings that can never work are logged: they must not end the watch."""
    notify = config.notify
    if problem := apprise_problem(notify.apprise.split()):
        log.error("Apprise will notify nobody: %s", problem)
        notify = msgspec.structs.replace(notify, apprise="")
    notify = msgspec.structs.replace(notify, events=notify.events.strip() or " ".join(STATES))
    try:
        return Notifier(notify, sent=sent)
    except UsageError as error:
        log.error("nobody will be notified: %s", error)
        return Notifier(NotifyConfig())


def limited(action: actions.Capture, most: int) -> actions.Capture:
    """The capture with a limited number of paused processes in the whole cluster, suspects
    first."""
    paused = (*action.suspects, *action.waiters)[:most]
    spared = (*action.suspects, *action.waiters)[most:]
    return msgspec.structs.replace(
        action,
        suspects=tuple(rank for rank in action.suspects if rank in paused),
        waiters=tuple(rank for rank in action.waiters if rank in paused),
        others=(*action.others, *spared),
    )


def _main(sets: DumpSets) -> dict[int, bytes]:
    """NCCL's dumps where it has recorded anything, else those of the other libraries."""
    return next(iter(sets.values()))


def _on(node: str, ranks: Iterable[Rank]) -> tuple[Rank, ...]:
    return tuple(rank for rank in ranks if rank.node == node)


def _dump_name(dump: Dump, first: int) -> str:
    """The name that PyTorch gives to what its watchdog writes; for JSON the name says so."""
    return f"{_stem(dump.place, first)}{dump.rank}" + ("" if dump.pickled else ".json")


def _stem(place: int, first: int) -> str:
    """What the names of one recorder's files begin with, so that its files are read together;
    ``first`` is the first place of any."""
    return "_dump_others_" if place != first else "_dump_"
