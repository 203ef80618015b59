"""Parses the lines of a job's log into ``LogFacts``, which help to interpret its series.

Formats: MaxText's ``Config param NAME: VALUE`` and ``completed step: N, seconds: S, ... loss: L``;
launchers' ``PASSTHROUGH_ARGS``, ``NNODES``, ``NODE_LIST``; JAX's coordination service on heartbeats
(``/job:jax_worker/replica:0/task:N``); NCCL's and RCCL's messages when communicators are made;
XLA's compilation messages; Orbax's file errors.
"""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel import regex as re
from ray_sentinel.diagnose.logs import LogFacts, LoggedStep, Total
from ray_sentinel.evidence.logs.lines.times import parse_time
from ray_sentinel.evidence.logs.training.steps import HINTS, parse_step
from ray_sentinel.model.diagnosis import Figure

WAVE_SECONDS = 30.0
"""Seconds; communicators made further apart than this belong to different waves."""
WAVE_LINES = 60
"""Number of other lines between two communicators from which they belong to different waves, where
lines carry no time."""
MAX_STEPS = 20_000
"""Most steps that are kept; those after them are left out."""
MAX_TOTALS = 200
"""Most different totals that steps may name; they are nearly always equal."""
MOST_NODES = 1 << 16
"""Most host names of one list, as many as Slurm takes of a range (``MAX_RANGE``); the rest is left
out."""
_PARAM = re.compile(r"Config param (\w+): (.*?)\s*$")
_ARGUMENT = re.compile(r"(?:^|\s)([A-Za-z_][\w.]*)=(\"[^\"]*\"|'[^']*'|\S*)")
_SETTING = re.compile(r"^\W*(NNODES|NODE_LIST|GPUS_PER_NODE|SLURM_JOB_NODELIST)\s*[=:]\s*(\S+)")
_TASK = re.compile(r"task:(\d+)")
_HEARTBEAT = re.compile(
    r"stopped sending heartbeats|heartbeat[^\n]{0,40}(?:timeout|timed out)", re.IGNORECASE
)
_INIT = re.compile(
    r"init\.cc:\d+ NCCL WARN MSCCL\+\+|NCCL INFO (?:comm \S+ |ncclCommInitRank\w* ).*"
    r"(?:Init COMPLETE|- Init COMPLETE)"
)
_COMPILED = re.compile(r"\b(?:Compilation of |Finished XLA compilation of |Compiling jit_)")
_RESTORE = re.compile(r"SingleReplicaArrayHandler|broadcast_one_replica_to_all")
_RESTORED = re.compile(r"[Rr]estor(?:ed|ing)\b[^\n]{0,120}?\bstep[ :=]*(\d+)")
_FS_ERROR = re.compile(
    r"manifest\.ocdbt|__lock|Stale file handle|No space left on device|Input/output error"
)
_FS_STEP = re.compile(r"/(\d{1,9})(?:\.orbax-checkpoint-tmp[^/\s]*)?/")
_FAILED = re.compile(
    r"(?:status|state|result)\W{1,4}FAIL|exit[ _](?:code|status)\W{1,4}[1-9]"
    r"|SUMMARY\b.{0,80}\bfail",
    re.IGNORECASE,
)
_SOCKET = re.compile(
    r"NET/Socket : Using|Using network Socket\b|NCCL_IB_DISABLE\W{1,3}1\b|NCCL_NET\W{1,3}Socket\b"
)
_RDMA = re.compile(r"NET/IB : Using|NET/OFI Selected|Using network (?:IB\w*|AWS|Libfabric|OFI)\b")
SUMMARY_LINES = 30
"""Most lines of a summary block."""
_NCCL_WARN = re.compile(r"\b[NR]CCL WARN (?!MSCCL)")


class MainLog:
    """Gathers facts from the main log, line by line."""

    def __init__(self, name: str = "", year: int = 1970) -> None:
        self.name, self.year = name, year
        self.config: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.steps: dict[float, LoggedStep] = {}
        self.totals: dict[tuple[int, bool], int] = {}
        self.facts: list[Figure] = []
        self.crash_at: float | None = None
        self.tasks: list[int] = []
        self.failed_checkpoint: float | None = None
        self.restored: float | None = None
        self.summary = False
        self._heartbeat_lines = 0
        self.failed = False
        self.transport = ""
        self._summary_lines = 0

    def feed(self, lines: Iterable[str]) -> None:
        """Read more lines."""
        for line in lines:
            self._line(line[:20_000])

    def _line(self, line: str) -> None:
        if param := _PARAM.search(line):
            self.config[param[1]] = param[2]
            return
        if "PASSTHROUGH_ARGS" in line:
            self.arguments.update(parse_arguments(line.split("PASSTHROUGH_ARGS", 1)[1]))
        elif setting := _SETTING.search(line):
            self.arguments[setting[1]] = setting[2].strip("'\"")
        elif "JOB SUMMARY" in line:
            self.summary, self._summary_lines = True, SUMMARY_LINES
        elif "completed step" in line or any(hint.decode() in line for hint in HINTS):
            self._step(line)
        self._troubles(line)
        self._how(line)

    def _how(self, line: str) -> None:
        """How the job ended, and what its collectives ran over."""
        if self._summary_lines > 0:
            self._summary_lines -= 1
            self.failed = self.failed or _FAILED.search(line) is not None
        if "N" in line and not self.transport:
            # What NCCL chose outranks its settings: it falls back to sockets by itself.
            if _SOCKET.search(line):
                self.transport = "socket"
            elif _RDMA.search(line):
                self.transport = "rdma"

    def _step(self, line: str) -> None:
        step = parse_step(line)
        if step is None or step.step is None:
            return
        if step.total is not None and len(self.totals) < MAX_TOTALS:
            self.totals[step.total, step.per_epoch] = step.step
        if len(self.steps) < MAX_STEPS:
            number = float(step.step)
            self.steps[number] = LoggedStep(step=number, seconds=step.seconds, loss=step.loss)

    def _troubles(self, line: str) -> None:
        if self._heartbeat_lines > 0:
            self._heartbeat_lines -= 1
            self.tasks += [int(task) for task in _TASK.findall(line)]
        if _HEARTBEAT.search(line):
            self._heartbeat_lines = 8
            self.tasks += [int(task) for task in _TASK.findall(line)]
            if self.crash_at is None:
                self.crash_at = parse_time(line, self.year)
                self._fact(line)
        elif _FS_ERROR.search(line):
            found = _FS_STEP.findall(line)
            if found and self.failed_checkpoint is None:
                self.failed_checkpoint = float(found[-1])
            if sum(fact.text == line for fact in self.facts) == 0 and len(self.facts) < 20:
                self._fact(line)
        if restored := _RESTORED.search(line):
            self.restored = float(restored[1])

    def _fact(self, line: str) -> None:
        self.facts.append(Figure(text=f"{self.name}: {line.strip()[:300]}", source="log"))

    def as_facts(self) -> LogFacts:
        """The facts gathered so far."""
        nodes = node_list(self.arguments.get("NODE_LIST") or "")
        tasks = dict.fromkeys(self.tasks)
        accused = tuple(nodes[task] for task in tasks if task < len(nodes))
        timeout = self.config.get("jax_distributed_heartbeat_timeout_seconds") or (
            self.arguments.get("jax_distributed_heartbeat_timeout_seconds", "")
        )
        failure = "heartbeat-timeout" if self.crash_at is not None or self.tasks else ""
        if not failure and self.failed_checkpoint is not None:
            failure = "checkpoint-fs-error"
        return LogFacts(
            config=self.config,
            arguments=self.arguments,
            steps=tuple(self.steps[step] for step in sorted(self.steps)),
            failure=failure,
            crash_at=self.crash_at,
            heartbeat_timeout=float(timeout) if timeout.replace(".", "", 1).isdigit() else None,
            accused=accused,
            failed_checkpoint=self.failed_checkpoint,
            restored_step=self.restored,
            summary=self.summary,
            failed=self.failed,
            transport=self.transport,
            totals=tuple(
                Total(float(total), float(step), per_epoch)
                for (total, per_epoch), step in self.totals.items()
            ),
            facts=tuple(self.facts),
            files=(self.name,) if self.name else (),
        )


def parse_arguments(text: str) -> dict[str, str]:
    """``name=value`` words of a command line.

    >>> parse_arguments(": steps=100 remat_policy='full'")
    {'steps': '100', 'remat_policy': 'full'}
    """
    return {name: value.strip("'\"") for name, value in _ARGUMENT.findall(text)}


def node_list(text: str) -> list[str]:
    """Host names of ``a,b`` or Slurm's ``n[001-003,7]``.

    >>> node_list("n[001-003,7],x")
    ['n001', 'n002', 'n003', 'n7', 'x']
    """
    found: list[str] = []
    for prefix, ranges, plain in re.findall(r"([\w.-]+)\[([\d,-]+)\]|([\w.-]+)", text):
        if plain:
            found.append(plain)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            if not _is_number(first) or (last and not _is_number(last)):
                continue
            end = min(int(last or first) + 1, int(first) + MOST_NODES - len(found))
            found += [f"{prefix}{number:0{len(first)}d}" for number in range(int(first), end)]
    return found[:MOST_NODES]


def _is_number(text: str) -> bool:
    return text.isdigit() and len(text) <= 9


def init_waves(lines: Iterable[str], year: int = 1970) -> int:
    """How many times, separated by pauses, a worker created communicators.

    A fresh start makes two waves (start-up, training); one more after a restore from a single
    replica is the sign of communicators that are never destroyed.
    """
    waves, last_at, since = 0, None, WAVE_LINES + 1
    for line in lines:
        if not _INIT.search(line):
            since += 1
            continue
        at = parse_time(line, year)
        if at is not None and last_at is not None:
            apart = at - last_at > WAVE_SECONDS
        else:
            apart = since > WAVE_LINES
        waves += apart or waves == 0
        last_at, since = at if at is not None else last_at, 0
    return waves


_WORKER_LINES = (
    (_NCCL_WARN, "NCCL warnings"),
    (_COMPILED, "XLA compilations"),
    (_RESTORE, "restores by broadcast from one replica"),
    (re.compile(r"Traceback \(most recent call last\)"), "tracebacks"),
    (re.compile(r"[Tt]imed? ?out\b"), "time-outs"),
    (re.compile(r"\bOut of memory|OutOfMemory|RESOURCE_EXHAUSTED"), "failed allocations"),
)


def count_lines(lines: Iterable[str]) -> dict[str, int]:
    """How often a worker's log contains each message worth comparing between jobs."""
    found: dict[str, int] = {}
    for line in lines:
        for pattern, what in _WORKER_LINES:
            if pattern.search(line):
                found[what] = found.get(what, 0) + 1
    return found


def worker_facts(name: str, lines: Iterable[str]) -> list[Figure]:
    """Lines of a worker's log that help to interpret the series: restores by broadcast, NCCL
    warnings."""
    found: list[Figure] = []
    for line in lines:
        if _RESTORE.search(line) or _NCCL_WARN.search(line):
            found.append(Figure(text=f"{name}: {line.strip()[:300]}", source="log"))
            if len(found) >= 5:
                break
    return found


_EXPORTER = (
    (re.compile(r"timed? ?out", re.IGNORECASE), "a plugin of the exporter timed out"),
    (re.compile(r"exit(?:ed)?(?: with)?(?: code)?[ =:]*99\b"),
     "a plugin of the exporter gave up for good (exit code 99)"),
    (re.compile(r"exited with code 137"), "the exporter was killed and restarted (code 137)"),
    (re.compile(r"Address already in use"), "the exporter's port was still taken at a restart"),
)  # fmt: skip
_PROMETHEUS = (
    (re.compile(r"context deadline exceeded"), "scrapes ran into their deadline"),
    (re.compile(r"connection refused"), "targets refused the connection"),
    (re.compile(r"[Ww]atchdog: exited"), "Prometheus was restarted by its watchdog"),
    (
        re.compile(r"too old|out of bounds|out of order", re.IGNORECASE),
        "samples were rejected as too old",
    ),
    (re.compile(r"corrupt", re.IGNORECASE), "Prometheus met corrupt data"),
)


def exporter_facts(name: str, host: str, lines: Iterable[str]) -> list[Figure]:
    """Why hardware series of a host may be missing."""
    return _counted(name, host, lines, _EXPORTER)


def prometheus_facts(name: str, lines: Iterable[str]) -> list[Figure]:
    """Why series may be missing altogether."""
    return _counted(name, "", lines, _PROMETHEUS)


def _counted(
    name: str, host: str, lines: Iterable[str], table: tuple[tuple[re.Pattern[str], str], ...]
) -> list[Figure]:
    count = dict.fromkeys((text for _, text in table), 0)
    for line in lines:
        for pattern, text in table:
            if pattern.search(line):
                count[text] += 1
    return [
        Figure(text=f"{name}: {text} ({number} times)", host=host, source="monitoring")
        for text, number in count.items()
        if number
    ]
