"""Splits a log line into its text and the prefixes that launchers wrote before it.

Launchers prefix each line with who printed it: Ray ``(TrainerActor pid=12, ip=10.0.0.2)``, torch
``[rank3]:``, torchrun ``[default0]:``, srun ``3: ``, mpirun ``[1,3]<stdout>:``, pdsh ``10.0.0.2:
``, kubectl ``[pod/name/container]``, syslog ``Apr 25 19:05:01 host kernel:``, Docker ``{"log":
...}``, NCCL ``host:pid:tid [gpu]``. Ray folds equal lines of many workers into one, with
``[repeated 7x across cluster]`` at its end.
"""

from __future__ import annotations

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.structured import named_fields, undocked
from ray_sentinel.evidence.ranks import OTHER_RANK

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
_REPEATED = re.compile(r"\s*\[repeated (\d+)x across cluster\](?: \(Ray deduplicates logs.*)?\s*$")

_RAY = re.compile_anchored(
    r"\((?P<name>[^\n]{0,160}?)(?:(?:^|(?<=\()|(?<= ))pid=(?P<pid>\d+))"
    r"(?:, ip=(?P<ip>[0-9A-Fa-f.:]+))?\)[ ]?"
)
_VLLM = re.compile(r"(?:VllmWorker rank=|Worker_TP)(?P<rank>\d+)(?:_EP\d+)?$")
"""The name of a vLLM worker process; it gives the tensor-parallel rank alone where there is no
other."""
_NUMBERED = re.compile(r"\[rank=(?P<rank>\d+)\]$")
"""The name of an actor that shows its rank: ``MegatronPolicyWorker[rank=0]``."""
_RAY_SYSTEM = re.compile(
    r"\((?P<name>raylet|gcs_server|autoscaler|monitor)(?:, ip=(?P<ip>[0-9A-Fa-f.:]+)| \+[\w]+)?\) ?"
)
_RANK = re.compile(r"\[rank[ _-]?(?P<rank>\d+)\]:? ?", re.IGNORECASE)
_ROLE = re.compile(
    r"\[(?:default(?P<local>\d{1,3})\]: ?"
    r"|(?!step|iter|epoch|batch|node|gpu|layer|stage)[a-z_]+(?P<of_role>\d{1,3})\]:(?! \S))",
    re.IGNORECASE,
)
"""torchrun's prefix of role and local rank, with no blank after it: ``[step100]: `` is text."""
_MPI = re.compile(r"\[\d+,(?P<task>\d+)\]<std(?:out|err)>: ?")
_SRUN = re.compile(r" {0,4}(?P<task>\d{1,5}): (?=\S|  |$)")
_HOST = re.compile_anchored(
    r"(?!E[A-Z]\d{4}: )"  # an error code of Ascend's libraries
    r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][A-Za-z0-9.-]*(?<=\d)): (?=\S|  )"
)
_DOUBLED = re.compile(r"[.-][.-]")
"""Two separators in a row, which no host's name contains."""
_POD = re.compile(r"\[pod/(?P<host>[^/\]\s]+)/[^\]\s]+\] ")
_COMPOSE = re.compile(r"(?P<host>[A-Za-z][\w.-]*\d)\s{1,12}\| ")
_SYSLOG = re.compile_anchored(
    r"(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.,]{8,16}(?:Z|[+-]\d\d:?\d\d)?)"
    r" (?P<host>[A-Za-z\d][\w.-]*) (?=kernel: )"
)
"""What syslog puts before the kernel's lines, whose own ``kernel:`` stays: what other services
print does not come from the machine itself."""
_KUBE = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)) std(?:out|err) [FP] ")
_STAMP = re.compile_anchored(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) "
    r"(?!\S{1,80} kernel: )"
    r"|(?:\d{4}-\d\d-\d\d[ T]|[A-Z][a-z]{2} [ \d]\d )\d\d:\d\d:\d\d(?:[.,]\d{1,9})? "
    r"(?=\([^()\n]{1,160}\bpid=\d|\[(?:rank|default)\d{1,6}\]:|\[\d+,\d+\]<std|"
    r"(?:Killed|Segmentation fault|Bus error|Aborted|Illegal instruction)(?: \(core dumped\))?\s*$)"
)
"""The time that ``kubectl logs --timestamps``, ``docker logs -t`` and ``ts`` write. In its looser
forms, which loggers write too, it counts only before what no logger prints."""
ENDLESS = re.compile(r"(\d{18})\d+")
"""A number with more digits than any that means something; Python refuses to read one of
thousands."""
_NCCL = re.compile_anchored(
    r"(?:\[[^\]]{10,30}\] |\d{4}-\d\d-\d\d[ T][\d:.,]{8,18} )?"
    r"(?P<host>[A-Za-z0-9][\w.-]*):(?P<pid>\d+):\d+ \[(?P<gpu>\d+)\] "
    r"(?=(?:\[[^\]]*\] )?(?:[^\s:]{1,200}:\d+ )?NCCL|[^\s:]{1,200}\.(?:cc|cu|h):\d+ WARN )"
)
_IN_TEXT = re.compile(r"\[(?:[^\]\n]{0,80} )?[Rr]ank[ :=]?\s?(?P<rank>\d+)\]")
_PLAIN = re.compile(r"\[[Rr]ank (?P<rank>\d+)\]")
_FIELD = re.compile_anchored(
    r"(?:time=\S{1,40} |\[?\d[\d:.,TZ/+ -]{7,38}\]? ?)?(?:\[?[A-Z]{4,8}\]? )?"
    r"(?:[a-z_]{1,30}=\S{1,80} ){0,6}(?:\[?[A-Z]{4,8}\]? )?rank=(?P<rank>\d{1,9}) "
    r"(?:[a-z_]{1,30}=[^\s\"]{1,80} ){0,6}"
    r"(?:\[?(?:DEBUG|INFO|WARN|ERROR|CRITICAL|FATAL)|(?:msg|message|event)=)"
)
"""``rank=3`` as a field of the logger: after the time, before the level or the message."""
_PID_TAIL = re.compile(r"\(pid=(?P<pid>\d+)(?:, ip=(?P<ip>[0-9A-Fa-f.:]+))?")
_REPR_TAIL = re.compile(r"repr=[\w.<> ]{1,120}\[rank=(?P<rank>\d{1,7})\]")
"""The end of what Ray writes of an actor that shows its rank."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who printed a line, as far as the line shows it."""

    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    ip: str = ""
    host: str = ""
    actor: str = ""
    gpu: str = ""
    task: int | None = None
    """The number that srun or mpirun gave. It is the rank too, unless the task is a launcher of
    ranks."""

    @property
    def names_process(self) -> bool:
        """Whether it says more than the process's host: a rank, a local rank or a pid."""
        return (self.rank, self.local_rank, self.pid) != (None, None, None)

    def filled(self, other: Origin) -> Origin:
        """This origin, with its gaps filled from ``other``."""
        return Origin(
            rank=self.rank if self.rank is not None else other.rank,
            local_rank=self.local_rank if self.local_rank is not None else other.local_rank,
            pid=self.pid if self.pid is not None else other.pid,
            ip=self.ip or other.ip,
            host=self.host or other.host,
            actor=self.actor or other.actor,
            gpu=self.gpu or other.gpu,
            task=self.task if self.task is not None else other.task,
        )

    def of_launcher(self) -> Origin:
        """This origin where srun's tasks are launchers, so that their numbers are not ranks."""
        if self.task is None or self.rank != self.task:
            return self
        return msgspec.structs.replace(self, rank=None)


NOBODY = Origin()


class ScannedLine(msgspec.Struct, frozen=True):
    """``text`` without prefixes; ``repeated`` is 1 for a line that was not folded."""

    text: str
    origin: Origin = NOBODY
    repeated: int = 1
    prefix: str = ""
    """What was taken off the front of the line: all lines of one block have the same."""


def is_streamed(line: ScannedLine) -> bool:
    """Whether the line has Ray's prefix ``(Actor pid=...)``."""
    return bool(line.origin.actor and line.origin.pid)


def strip_escapes(text: str) -> str:
    """``text`` without terminal escape sequences, without zero bytes, which fill holes of files,
    and without carriage returns at its end."""
    if "\0" in text:
        text = text.replace("\0", "")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.rstrip("\r\n")


def parse_line(raw: str) -> ScannedLine:
    """Split one line into prefixes and text.

    >>> parse_line("(Trainer pid=7, ip=10.0.0.2) [rank3]: boom [repeated 7x across cluster]").text
    'boom'
    """
    text = strip_escapes(undocked(raw) if raw.startswith('{"log":') else raw)
    text = ENDLESS.sub(r"\1", text)
    repeated = 1
    if text.endswith((")", "]")) and (match := _REPEATED.search(text)):
        repeated, text = int(match.group(1)), text[: match.start()]
    start = 0
    found: dict[str, str] = {}
    for _ in range(5):
        match = launcher_prefix(text, start)
        if match is None or match.end() == start:
            break
        if match.re.pattern is _SRUN.pattern and not found.keys().isdisjoint(
            ("rank", "task", "local")
        ):
            break  # a number of the text itself: who printed the line is known
        for key, value in match.groupdict().items():
            if not value or key == "time":
                continue
            if key == "name" or (key == "pid" and "name" in match.groupdict()):
                found[key] = value  # the innermost of nested ones wrote the line
            else:
                found.setdefault({"of_role": "local"}.get(key, key), value)
        start = match.end()
    body = text[start:]
    if body.startswith("{"):
        found = {**named_fields(body), **found}
    if "rank" not in found and "ank" in body and (rank := _rank_in(body, "task" in found)):
        found["rank"] = rank
    if "task" in found and "local" not in found:
        found.setdefault("rank", found["task"])
    return ScannedLine(body, _origin(found), repeated, text[:start])


def _rank_in(body: str, numbered: bool) -> str | None:
    """The rank that the text itself states; for a numbered task only in torch's plain form."""
    match = (_PLAIN if numbered else _IN_TEXT).search(body, 0, 200) or _FIELD.match(body)
    if match is None or OTHER_RANK.search(match.group()):
        return None
    return match["rank"]


def launcher_prefix(text: str, at: int) -> re.Match[str] | None:
    """The prefix that a launcher or log collector wrote at ``at``; None if none is recognised
    there."""
    first = text[at : at + 1]
    if first == "(":
        return _RAY_SYSTEM.match(text, at) or _RAY.match(text, at)
    if first == "[":
        return (
            _RANK.match(text, at)
            or _MPI.match(text, at)
            or _POD.match(text, at)
            or _ROLE.match(text, at)
            or _NCCL.match(text, at)
        )
    if first.isdigit():
        return (
            _KUBE.match(text, at)
            or (_STAMP.match(text) if not at else None)
            or _SRUN.match(text, at)
            or _host(text, at)
            or _NCCL.match(text, at)
            or _SYSLOG.match(text, at)
        )
    if first == " ":
        return _SRUN.match(text, at)
    if first.isalpha():
        return (
            _NCCL.match(text, at)
            or (_STAMP.match(text) if not at else None)
            or _COMPOSE.match(text, at)
            or _host(text, at)
            or _SYSLOG.match(text, at)
        )
    return None


def _host(text: str, at: int) -> re.Match[str] | None:
    match = _HOST.match(text, at)
    return None if match is None or _DOUBLED.search(match["host"]) else match


def _origin(found: dict[str, str]) -> Origin:
    if not found:
        return NOBODY
    name = found.get("name", "").strip()
    worker = _VLLM.match(name) or _NUMBERED.search(name)
    return Origin(
        rank=_number(found.get("rank") or (worker["rank"] if worker else None)),
        local_rank=_number(found.get("local")),
        task=_number(found.get("task")),
        pid=_number(found.get("pid")),
        ip=found.get("ip", ""),
        host=found.get("host", ""),
        actor=name,
        gpu=found.get("gpu", ""),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None


def named_process(text: str) -> Origin:
    """The process that a message mentions: ``(pid=12, ip=10.0.0.2..., repr=Worker[rank=2])``."""
    match = _PID_TAIL.search(text)
    if match is None:
        return NOBODY
    shown = _REPR_TAIL.search(text, match.end())
    rank = int(shown["rank"]) if shown else None
    return Origin(pid=int(match.group("pid")), ip=match.group("ip") or "", rank=rank)
