"""``run()`` and ``auto_restart()``: a training command supervised, with all that we know.

The loop is in ``ray_sentinel.supervise``; here it is given eyes (the coordinator's page, the ranks'
records), tools (py-spy), and a reader for what the command printed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ray_sentinel import process
from ray_sentinel.capture import session
from ray_sentinel.cleanup_check import CleanupCheck
from ray_sentinel.config import Config, load, safe_name
from ray_sentinel.errors import SentinelError, UnreachableError, UsageError
from ray_sentinel.evidence_file import users_of
from ray_sentinel.job_name import JobName
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.logs.triage_process import triage_in_process
from ray_sentinel.masking import mask, mask_record
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import Incident
from ray_sentinel.private_files import keep_private
from ray_sentinel.process.apart import UnreadError
from ray_sentinel.progress.discovery.descendants import descendants
from ray_sentinel.progress.reader import RecordReader
from ray_sentinel.supervise.actions import RunResult
from ray_sentinel.supervise.attempt.command import current_folder, words_of
from ray_sentinel.supervise.attempt.terminal import Terminal
from ray_sentinel.supervise.bad_nodes import BadNode, of_incidents, of_triage
from ray_sentinel.supervise.curable import normalised
from ray_sentinel.supervise.json_records import readable
from ray_sentinel.supervise.notify.notices import Notice
from ray_sentinel.supervise.notify.notifier import Notifier
from ray_sentinel.supervise.parts import Parts, Sighting
from ray_sentinel.supervise.policy import Failure, Policy
from ray_sentinel.supervise.run_folder import RunFolder, State
from ray_sentinel.supervise.supervisor import Supervisor
from ray_sentinel.supervise.task import RunTask
from ray_sentinel.trusted_path import are_trusted
from ray_sentinel.watched_page import WatchedPage
from ray_sentinel.whole_file import write_whole

MOST_CAPTURED = 64
"""Most processes whose stacks are taken if no agent takes them."""
MOST_DEEPER = 4
"""Most of these processes whose native stacks are taken too, each of which may take a second."""
NO_HANG = frozenset({"slow", "starved", "paused", "sentinel", "asked", "stall", "pending"})
"""Kinds of incidents that a restart would not cure, or that end by themselves."""
ENDS = frozenset({"rank-dead", "actor-dead", "driver-dead", "oom-killed", "node-lost"})
PATIENCE = 30.0
"""Seconds that a launcher has to end by itself after one of its ranks did: what it prints then
tells more."""
DRAIN_SECONDS = 60.0
"""Seconds for joining the Ray cluster and asking it to drain a node."""
SURE = 0.5
"""Confidence below which a class of failure is not acted upon."""
READ_SECONDS = 40.0
"""Seconds that a process of its own may take to read an attempt's output; fewer than the supervisor
waits."""


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    job: str = "",
    checkpoint_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    config: Config | None = None,
    page: str | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] = "",
    terminal: BinaryIO | Terminal | None = None,
    max_output: int = 256 << 20,
    say: Callable[[str], None] | None = None,
    notifier: Notifier | None = None,
    drain_bad_nodes: bool = False,
    **policy: Any,
) -> RunResult:
    """Start ``command``, watch it, restart it from its latest good checkpoint; blocks.

    ``checkpoint_dir`` may be several places, the fastest first. ``page`` is the link to the
    coordinator's ("" for none; None for the one of this user on this machine). The command's output
    is also written to ``terminal``, which is not waited for if it blocks. ``notifier`` notifies
    people; without it, the ``[notify]`` section of the configuration says whom. ``drain_bad_nodes``
    has Ray place nothing more on a node that was found bad, for good. ``policy`` are fields of
    ``supervise.policy.Policy``, such as ``max_retries``. Raises UsageError if the command or an
    argument cannot be used, or where somebody supervises the job already.
    """
    rules = make_policy(policy)
    command = words_of(command)
    if cwd and not os.path.isdir(cwd):
        raise UsageError(f"{os.fspath(cwd)}: is no folder that a command could run in")
    tiers = checkpoint_folders(checkpoint_dir)
    settings = config or load(overrides={"job": job} if job else None)
    name = (
        job or settings.job or safe_name(os.path.basename(command[0] if command else "")) or "job"
    )
    root = msgspec.structs.replace(settings, job=name).directory()
    task = RunTask(
        argv=tuple(command),
        job=name,
        folder=root / "run" / (safe_name(name) or "job"),
        checkpoint_dirs=tiers,
        cwd=str(cwd),
        environ={**os.environ, **(environ or {}), "RAY_SENTINEL_LOG_DIR": str(root)},
        max_output=max(max_output, 1 << 16),
    )
    if drain_bad_nodes:
        _check_cluster(task.environ.get("RAY_ADDRESS", ""))

    def say_masked(text: str) -> None:
        if say is not None:
            say(mask(text))

    where = watched_page(page, settings, task.environ, say_masked)
    told = notifier or Notifier(settings.notify)
    reader = RecordReader(None)
    known = JobName(name, where, say_masked, task.folder / "page_name")
    parts = Parts(
        explain=explain,
        scan=scan_checkpoints,
        watch=(lambda since: poll_page(where, known.now(), since)) if where is not None else None,
        capture=lambda state, folder, why: capture(settings, state, folder, why),
        steps=lambda attempt: last_step(
            reader, known.last, attempt, lambda: users_of_attempt(task.folder, attempt)
        ),
        clear=CleanupCheck(task.argv, task.environ, lambda: known.last, where).problem,
        say=say_masked,
        notify=lambda event, text: told.notify(run_notice(name, event, text)),
        drain=(lambda node: drain(node, task.environ)) if drain_bad_nodes else None,
    )
    shown = (
        Terminal(terminal)
        if terminal is not None and not isinstance(terminal, Terminal)
        else terminal
    )
    try:
        return Supervisor(task, rules, parts, terminal=shown).run()
    finally:
        if shown is not None and shown is not terminal:
            shown.close()
        if not told.close():
            parts.say(f"not everybody was told: {told.problem or 'a receiver does not answer'}")
        reader.close()


def checkpoint_folders(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[Path, ...]:
    """One folder, or several, as absolute paths. Raises UsageError for an empty name."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    if not all(os.fspath(one) for one in several):
        # Such as an unset variable of a shell: the current folder is not what was meant.
        raise UsageError(
            "a checkpoint folder's name is empty: leave --checkpoint-dir out, or name it"
        )
    paths = [Path(one).expanduser() for one in several]
    return tuple(one if one.is_absolute() else current_folder() / one for one in paths)


def watched_page(
    page: str | None, settings: Config, environ: Mapping[str, str], say: Callable[[str], None]
) -> WatchedPage | None:
    """The page at which the coordinator is asked; None for none. Raises UsageError for anything but
    a URL."""
    if page == "":
        return None
    return WatchedPage(page or "", port=settings.coordinator.port, environ=environ, say=say)


def _check_cluster(address: str) -> None:
    """Nodes are drained for good: in a cluster that was named, not in one that is found."""
    if not address or address == "auto" or "://" in address:
        raise UsageError(
            "--drain-bad-nodes needs the cluster's name: set RAY_ADDRESS to its HOST:PORT"
        )


def run_notice(job: str, event: str, text: str) -> Notice:
    """A notice of a supervised run; two restarts are two notices."""
    now = time.time()
    host = os.uname().nodename
    key = f"run:{job}:{event}:{now:.3f}"
    return Notice(
        key=readable(key), event=event, job=readable(job), text=readable(text), time=now, host=host
    )


def make_policy(fields: Mapping[str, Any]) -> Policy:
    """The policy with these fields. Raises UsageError for an unknown one, or a bad value."""
    known = {field.name for field in msgspec.structs.fields(Policy)}
    for name in fields.keys() - known:
        raise UsageError(f"run() knows no {name}; there are: {', '.join(sorted(known))}")
    try:
        made = msgspec.convert(dict(fields), Policy, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"run(): {error}") from None
    for field in msgspec.structs.fields(Policy):
        value = getattr(made, field.name)
        if not 0 <= value < float("inf"):
            raise UsageError(f"run(): {field.name} must be a number of at least 0, and is {value}")
    return made


def explain(folder: Path, state: State) -> Failure | None:
    """What became of an attempt: from its exit status, and from what it printed."""
    if state.code == 0:
        return None
    seconds = (state.ended_at or state.started_at) - state.started_at
    plain = Failure(
        kind="signal" if state.signal else "exit",
        text=mask(state.problem) or _how_it_ended(state),
        code=state.code,
        signal=state.signal,
        seconds=seconds,
    )
    if state.problem:
        return msgspec.structs.replace(plain, kind="not-started")
    try:
        answer = triage_in_process(folder / "output.log", seconds=READ_SECONDS)
    except UnreadError as error:
        text = f"{plain.text}; what it printed was not understood: {error}"
        return msgspec.structs.replace(plain, text=mask(text))
    except SentinelError:
        return plain  # it printed nothing, or something other than text
    said = answer.exception
    exception = normalised(f"{said.kind}: {said.message}") if said else ""
    sure = answer.confidence >= SURE and answer.kind not in (
        "unknown-death",
        "running",
        "completed",
    )
    failure = msgspec.structs.replace(
        plain,
        kind=answer.kind if sure else plain.kind,
        text=f"{answer.summary}; {plain.text}" if sure else plain.text,
        exception=exception,
        step=answer.progress.last_step,
        nodes=of_triage(answer),
    )
    return mask_record(failure)


def _how_it_ended(state: State) -> str:
    if state.signal:
        name = signal.Signals(state.signal).name if state.signal in list(signal.Signals) else ""
        return f"killed by signal {state.signal} {name}".strip()
    if state.code is None:
        return "it was killed together with its keeper"
    return f"it ended with status {state.code}"


def poll_page(
    page: WatchedPage | None, job: str, since: float, now: float | None = None
) -> Sighting:
    """What the coordinator says about a job since then, on our wall clock as it is now. One that
    does not answer, or does not prove who it is, says nothing, as where there is no page."""
    if page is None:
        return Sighting()
    try:
        found = page.get_json("/api/v1/incidents")
    except UnreachableError:
        return Sighting()
    ahead = _ahead(page)
    moment, since = (time.time() if now is None else now) + ahead, since + ahead
    incidents = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    blamed = of_incidents(incident_records(incidents), job)
    for incident in reversed(incidents):
        kind, state = str(incident.get("kind")), str(incident.get("state"))
        if incident.get("job") != job or kind in NO_HANG:
            continue
        if (incident.get("suspected_at") or 0.0) < since:
            continue
        if kind in ENDS and moment - (incident.get("confirmed_at") or moment) < PATIENCE:
            continue
        if state in ("confirmed", "captured", "explained"):
            bundle = str(incident.get("bundle") or "") if state != "confirmed" else ""
            summary = str(incident.get("summary") or incident.get("verdict") or kind)
            return Sighting(
                hang=f"{summary} (incident {incident.get('id')})", bundle=bundle, bad_nodes=blamed
            )
    return Sighting(bad_nodes=blamed)


def _ahead(page: WatchedPage) -> float:
    """Seconds by which the coordinator's wall clock is ahead of ours: either may have been set."""
    try:
        told = page.get_json("/api/v1/time")
    except UnreachableError:  # an older version's
        return 0.0
    at = told.get("time") if isinstance(told, dict) else None
    return at - time.time() if isinstance(at, int | float) else 0.0


def incident_records(incidents: Sequence[dict[str, Any]]) -> list[Incident]:
    """The incidents that can be read: a coordinator of another version may say other things."""
    made = []
    for one in incidents:
        try:
            made.append(msgspec.convert(one, Incident))
        except msgspec.ValidationError:
            continue
    return made


def drain(node: BadNode, environ: Mapping[str, str]) -> str:
    """Have Ray place nothing more on a node: what came of it, in one sentence.

    In a process of its own: joining a cluster is nothing that a supervisor should hang in.
    """
    argv = process.python_module("ray_sentinel.actors.deployment.draining", node.host, node.why)
    ended = process.run(argv, deadline=DRAIN_SECONDS, env=environ)
    if ended.ok:
        return f"{node.host} is drained: Ray places nothing more on it"
    last = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    why = last[0][:300] if last and not ended.timed_out else ended.explain()
    return f"{node.host} is not drained: {why}"


def capture(config: Config, state: State, folder: Path, why: str) -> str:
    """Stacks of all processes of the attempt, where no agent takes them; the folder they are in."""
    ranks = [
        Rank(
            id=RankId(job="", attempt=0, rank=number),
            process=ProcessId(host=os.uname().nodename, pid=one.pid, start=one.start),
            node="",
        )
        for number, one in enumerate(descendants(state.keeper)[:MOST_CAPTURED])
    ]
    # They are about to be ended: the tools that pause them do no harm any more.
    outcome = session.capture(ranks[:MOST_DEEPER], (), ranks, config.capture)
    bundle = folder / "hang"
    keep_private(bundle)
    said = mask("\n".join([why, *outcome.problems])) + "\n"
    for name, data in {**outcome.files, "why.txt": said.encode("utf-8", "replace")}.items():
        write_whole(bundle / name, data)
    return str(bundle)


def last_step(
    reader: RecordReader, job: str, attempt: int, users: Callable[[], frozenset[int]]
) -> int | None:
    """The least last step of the job's ranks: all have made it.

    Root reads the records of all users, and any of them can leave one that stands still: besides
    those of trusted users only those of the attempt's own ``users`` count.
    """
    found = [
        view
        for view in reader.scan()
        if view.identity is not None
        and view.identity.job == job
        and view.identity.attempt >= attempt
        and view.words is None
        and view.progress.step is not None
    ]
    if not are_trusted({view.owner for view in found}):
        known = users()
        found = [view for view in found if are_trusted([view.owner]) or view.owner in known]
    return min(
        (view.progress.step for view in found if view.progress.step is not None), default=None
    )


def users_of_attempt(folder: Path, attempt: int) -> frozenset[int]:
    """The users of the processes of an attempt of the run in ``folder``; none once it has ended."""
    state = RunFolder(folder).state(attempt)
    users: set[int] = set()
    for one in descendants(state.keeper) if state is not None else ():
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            users |= users_of(one.pid)
    return frozenset(users)


def auto_restart(
    command: Sequence[str | os.PathLike[str]],
    job_name: str = "",
    checkpoint_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    max_retries: int = 10,
    retry_delay: float = 60,
    stagnation_threshold: float = 300,
    **more: Any,
) -> dict[str, Any]:
    """``run()`` with a plain answer: ``success``, ``final_step``, ``total_retries``, ``reason``,
    and ``time_lost_seconds``."""
    result = run(
        command,
        job=job_name,
        checkpoint_dir=checkpoint_dir,
        max_retries=max_retries,
        retry_delay=retry_delay,
        stagnation_threshold=stagnation_threshold,
        terminal=more.pop("terminal", sys.stdout.buffer if hasattr(sys.stdout, "buffer") else None),
        **more,
    )
    return dict(msgspec.to_builtins(result))
