"""``incidents replay``: which event logs are meant, and the result of judging them again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ray_sentinel import config
from ray_sentinel.actors.bundles.bundle import MAX_FILE, made_by
from ray_sentinel.actors.coordinator.event_log.replay import (
    RecordedLog,
    Replay,
    ReplayedIncident,
    recorded_logs,
    straggler_of,
)
from ray_sentinel.cli.named_paths import is_folder
from ray_sentinel.cli.output import Printer, print_json, text_printer
from ray_sentinel.cli.weighing import Weighing, print_weighing, weighing
from ray_sentinel.config import Config
from ray_sentinel.errors import InputError, UsageError
from ray_sentinel.model.incident import Incident
from ray_sentinel.private_files import read_private
from ray_sentinel.report.contract import incident_dict
from ray_sentinel.report.words import percent

_EXPECTED = (
    "expected is a log_dir (with events/), a folder of events (with NNNNNN.jsonl or .jsonl.gz), or "
    "an incident's folder in a log_dir"
)
_SAME_SECONDS = 1e-3
_NOBODY = "nobody"


class _Wanted(NamedTuple):
    """What the command line asks for."""

    logs: list[Path]
    number: str = ""
    """The number of the incident to replay; empty for all incidents."""
    suspected_at: float | None = None
    """When that incident was first suspected, by the log's clock; None if this is not known."""


def replay(name: str, source: str, *, job: str, as_json: bool, why: bool = False) -> int:
    """Judge again, print, and return the exit code. Raises InputError, UsageError, ConfigError."""
    settings = config.load()
    wanted = _wanted(name, source, settings)
    results: list[Replay] = []
    problems: list[str] = []
    for folder in wanted.logs:
        try:
            log = RecordedLog(folder)
        except InputError as error:
            problems.append(str(error))
            continue
        if not wanted.number:
            results.append(log.replay(settings))
            continue
        results += [log.replay(settings, one) for one in log.reported if _is(one, wanted)]
        if not results:
            problems += log.problems
    if not results:
        raise InputError(_nothing(wanted, problems))
    results = [_of_job(one, job) for one in results] if job else results
    if as_json:
        print_json(_as_dict(results, problems, why=why))
    else:
        _print(results, problems, why=why)
    return 0 if not problems and all(map(_is_same, results)) else 1


def _of_job(result: Replay, job: str) -> Replay:
    kept = (one for one in result.incidents if _either(one).job == job)
    return msgspec.structs.replace(result, incidents=tuple(kept))


def _wanted(name: str, source: str, settings: Config) -> _Wanted:
    if not name and not source:
        raise UsageError("which? ray-sentinel incidents replay ID, or replay DIR")
    if name and Path(name).is_dir():
        return _of_folder(Path(name), source)
    if "/" in name or Path(name).exists():
        is_folder(name)  # or says that there is nothing
        raise InputError(f"{name}: is a file; {_EXPECTED}")
    place = Path(source) if source else settings.directory()
    if not source and not place.exists():
        raise InputError(
            f"{name}: there is no such folder, and no log_dir {place} in which it could be the ID "
            "of an incident; --from DIR names another place"
        )
    return _Wanted(_logs(place), name.zfill(4) if name.isdecimal() else name)


def _of_folder(folder: Path, source: str) -> _Wanted:
    if not (folder / "incident.json").is_file():
        return _Wanted(_logs(folder))
    stored = _stored(folder / "incident.json")
    # ``log_dir/incidents/NAME``: its file says which of the deployments under ``log_dir`` made it.
    place = Path(source) if source else folder.absolute().parent.parent
    logs, deployment = _logs(place), made_by(folder)
    own = [path for path in logs if path.name == deployment]
    if deployment and not own and len(logs) > 1:
        raise InputError(
            f"{folder}: was made by the deployment {deployment}, whose events are not in {place}; "
            "name their folder: --from DIR"
        )
    return _Wanted(own or logs, stored.id, stored.suspected_at - stored.clock_shift)


def _stored(path: Path) -> Incident:
    try:
        return msgspec.json.decode(read_private(path, MAX_FILE), type=Incident)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is no incident of ray_sentinel: {error}") from None


def _logs(place: Path) -> list[Path]:
    is_folder(str(place))  # or says what it is instead
    if found := recorded_logs(place):
        return found
    raise InputError(f"{place}: holds no event log; {_EXPECTED}. --from DIR names another place")


def _is(incident: Incident, wanted: _Wanted) -> bool:
    at = wanted.suspected_at
    same = at is None or abs(incident.suspected_at - at) < _SAME_SECONDS
    return incident.id == wanted.number and same


def _nothing(wanted: _Wanted, problems: list[str]) -> str:
    if not wanted.number:
        return "; ".join(problems[:4])
    known = sorted({one.id for folder in wanted.logs for one in _reported(folder)})
    place = ", ".join(map(str, wanted.logs[:3]))
    text = (
        f"incident {wanted.number} is not in the events of {place} (known: "
        f"{', '.join(known[-10:]) or 'none'}): events that were pruned, or of another log_dir or "
        "deployment, cannot be judged anew"
    )
    return "; ".join([text, *problems[:3]])


def _reported(folder: Path) -> list[Incident]:
    try:
        return RecordedLog(folder).reported
    except InputError:
        return []


def _is_same(result: Replay) -> bool:
    return not result.problems and not any(one.differences or one.notes for one in result.incidents)


def _either(one: ReplayedIncident) -> Incident:
    incident = one.then or one.now
    assert incident is not None
    return incident


def _weighing(one: ReplayedIncident) -> Weighing | None:
    verdict = one.now.verdict if one.now is not None else None
    named = {culprit.rank for culprit in verdict.culprits} if verdict is not None else set()
    return weighing(one.scores, named)


def _as_dict(results: list[Replay], problems: list[str], *, why: bool) -> dict[str, Any]:
    return {
        "same": not problems and all(map(_is_same, results)),
        "problems": problems,
        "logs": [
            {
                "folder": result.folder,
                "events": result.events,
                "window": [result.begin, result.end],
                "problems": result.problems,
                "incidents": [
                    {
                        "id": _either(one).id,
                        "job": _either(one).job,
                        "same": not one.differences and not one.notes,
                        "differs": one.differences,
                        "fitted_anew": one.is_fitted_anew,
                        "notes": one.notes,
                        "then": incident_dict(one.then) if one.then else None,
                        "now": incident_dict(one.now) if one.now else None,
                        **({"why": msgspec.to_builtins(_weighing(one))} if why else {}),
                    }
                    for one in result.incidents
                ],
            }
            for result in results
        ],
    }


def _print(results: list[Replay], problems: list[str], *, why: bool) -> None:
    say = text_printer()
    for result in results:
        say(
            f"{result.folder}: {result.events} events, {_moment(result.begin)} to "
            f"{_moment(result.end)}",
            "dim",
        )
        if not result.incidents:
            say("  no incident was reported, and none is reported now")
        for one in result.incidents:
            _print_one(one, say)
            if why:
                _print_why(one, say)
        for problem in result.problems:
            say(f"problem: {problem}", "yellow")
    for problem in problems:
        say(f"problem: {problem}", "yellow")


def _print_one(one: ReplayedIncident, say: Printer) -> None:
    incident, differs = _either(one), one.differences
    said = "the same" if not differs else f"differs in {', '.join(differs)}"
    if one.then is None:
        said = "was not reported then, is reported now"
    elif one.now is None:
        said = "was reported then, is not reported now"
    elif not differs and one.notes:
        said = "the same, as far as it could be judged anew"
    say(f"\nincident {incident.id} of {incident.job}: {said}", "bold red" if differs else "bold")
    for name, then, now in _rows(one):
        if one.then is None or one.now is None:
            say(f"  {name:<11}{now if one.then is None else then}")
        elif then == now:
            say(f"  {name:<11}the same: {then}")
        else:
            say(f"  {name:<11}then: {then}")
            fitted = one.is_fitted_anew and name == "confidence"
            why = ", on the same evidence: how often that is right was fitted anew" * fitted
            say(f"  {'':<11}now:  {now}{why}", "" if fitted else "yellow")
    for note in one.notes:
        say(f"  note: {note}", "yellow")


def _print_why(one: ReplayedIncident, say: Printer) -> None:
    """What was weighed; else what the one finding says, such as the chain of waits."""
    verdict = one.now.verdict if one.now is not None else None
    if (weighed := _weighing(one)) is not None:
        print_weighing(weighed, say)
    elif verdict is not None:
        for item in verdict.evidence:
            say(f"  {item.source}: {item.text}")


def _rows(one: ReplayedIncident) -> Iterator[tuple[str, str, str]]:
    told = [_words(incident) if incident else {} for incident in (one.then, one.now)]
    if all(words.get("straggler") in (None, _NOBODY) for words in told):
        told = [{key: text for key, text in words.items() if key != "straggler"} for words in told]
    for name in told[0] or told[1]:
        yield name, told[0].get(name, ""), told[1].get(name, "")


def _words(incident: Incident) -> dict[str, str]:
    verdict = incident.verdict
    named = "; ".join(
        f"{one.label} on {one.host}".strip() + (f" pid {one.pid}" if one.pid else "")
        for one in (verdict.culprits if verdict else ())
    )
    return {
        "kind": incident.kind,
        "culprits": named or _NOBODY,
        "sentence": incident.summary,
        "confidence": percent(verdict.confidence) if verdict else "none",
        "suspected": _moment(incident.suspected_at),
        "confirmed": _moment(incident.confirmed_at),
        "resolved": _moment(incident.resolved_at),
        "straggler": _straggler(incident),
    }


def _straggler(incident: Incident) -> str:
    if (found := straggler_of(incident)) is None:
        return _NOBODY
    _, whom, cost = found
    return f"{whom} cost {cost:.1f} % of the time before"


def _moment(at: float | None) -> str:
    if at is None:
        return "never"
    try:
        moment = datetime.fromtimestamp(at, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 100_000} UTC"
