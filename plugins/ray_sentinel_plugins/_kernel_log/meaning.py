"""From records to facts, where one fact takes several lines or one line repeats another.

* A GPU that falls off the bus is Xid 79. Some drivers print the Xid, then the plain words as well;
  some print only the words, over several lines. Whatever comes second within ``SAME_FALL`` is the
  same fall.
* One hardware error is many lines in a row that begin alike.
* The line before an OOM kill names the cgroup and the constraint.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ray_sentinel import regex as re
from ray_sentinel_plugins._kernel_log.gpu_patterns import AMD, LOST, NVIDIA, XID
from ray_sentinel_plugins._kernel_log.host_patterns import NETWORK, OOM, STORAGE, TASKS
from ray_sentinel_plugins._kernel_log.patterns import PCI, KernelFact, match, normal_pci
from ray_sentinel_plugins._kernel_log.records import KernelRecord, lines

SAME_FALL = 600.0
"""Seconds within which a lost GPU that is reported again is the same loss: the driver repeats the
words at each attempt to reach it."""
SAME_ERROR = 5.0
"""Longest time in seconds between two lines of one hardware error."""
MAX_LINE = 1000
"""Most characters of a line in which patterns are looked for."""
MAX_LOST_GPUS = 64
"""Most GPUs whose loss is remembered, so that it is counted once."""
XID_LOST = "79"
REPORT = "kernel.hardware_error"
"""Kind of the firmware's report of an error, in CPER form; it may name the device."""
TABLE = (*NVIDIA, *AMD, *TASKS, *STORAGE, *NETWORK)

_ERROR = re.compile(
    rf"(?P<source>mce: |EDAC \w+: |amdgpu {PCI}: )?(?:amdgpu: )?(?P<group>\{{\d+\}})?"
    r"\[Hardware Error\]: |^mce: (?:CPU|Machine)|^EDAC (?P<edac>\w+): \d+ [CU]E "
)
"""Pattern of a line of a machine check, of the firmware's error report (APEI's GHES, in CPER form),
of EDAC, or of AMD's accelerator check architecture (ACA)."""

_NVRM_GPU = re.compile(rf"NVRM: (?:The NVIDIA )?GPU(?: at)? (?:PCI:)?{PCI}")
_OOM_CONTEXT = re.compile(r"oom-kill:constraint=(?P<constraint>\w+),(?P<rest>.*)")
_CPER_FIELD = re.compile(
    r"(?P<key>event severity|section_type|device_id|vendor_id|class_code|Error \d+, type):"
    r" +(?P<value>[\w .:-]+)"
)
_CPER_NAMES = {
    "event severity": "severity",
    "section_type": "section",
    "device_id": "pci",
    "vendor_id": "vendor",
    "class_code": "class",
}
GPU_VENDORS = frozenset({"0x10de", "0x1002"})
GPU_CLASSES = ("03", "12")
"""PCI base classes of GPUs: display controller and processing accelerator."""


class KernelLogState(msgspec.Struct, kw_only=True):
    """What must be remembered from one batch to the next, across restarts too."""

    falls: dict[str, tuple[float, bool]] = {}
    """For each lost GPU: when it was last reported to have fallen off, and whether an Xid reported
    it."""
    error: str = ""
    """The beginning of the last hardware error's lines; ``error_at`` is when the last one came."""
    error_at: float = 0.0
    gpu: str = ""
    """The GPU that NVRM last named; ``gpu_at`` is when."""
    gpu_at: float = 0.0
    oom: dict[str, str] = {}


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """A fact with its record and its words."""

    record: KernelRecord
    text: str
    fact: KernelFact


def happenings(records: list[KernelRecord], memory: KernelLogState) -> Iterator[Happening]:
    """All facts in the records, each once. Changes ``memory``."""
    error: list[tuple[KernelRecord, str]] = []
    for record, whole in lines(records):
        line = whole[:MAX_LINE]
        if found := _ERROR.search(line):
            if (start := _continues(found, record, memory)) and not error:
                continue
            if not start and error:
                yield _hardware(error)
                error = []
            error.append((record, line))
            continue
        if error:
            yield _hardware(error)
            error = []
        if fact := _plain(record, line, memory):
            yield Happening(record=record, text=line, fact=fact)
    if error:
        yield _hardware(error)


def _continues(found: re.Match[str], record: KernelRecord, memory: KernelLogState) -> bool:
    """Whether a hardware-error line belongs to the error before it."""
    key = "|".join(found.group(name) or "" for name in ("source", "group", "edac"))
    now = _when(record)
    same = key == memory.error and 0 <= now - memory.error_at <= SAME_ERROR
    # EDAC and AMD's ACA header say in one line what is one error.
    same = same and not found.group("edac") and "Architecture events logged" not in found.string
    memory.error, memory.error_at = key, now
    return same


def _hardware(error: list[tuple[KernelRecord, str]]) -> Happening:
    """The fact of one hardware error from all its lines."""
    record, first = error[0]
    found = _ERROR.search(first)
    device = (found.group("pci") or "") if found else ""
    attributes = {"pci": normal_pci(device)} if device else {}
    for _, line in error:
        for field in _CPER_FIELD.finditer(line):
            name = _CPER_NAMES.get(field.group("key"))
            if name:
                attributes.setdefault(name, field.group("value").strip())
    if re.fullmatch(PCI, attributes.get("pci", "")):
        attributes["pci"] = normal_pci(attributes["pci"])
    words = "\n".join(line for _, line in error)
    fatal = re.search(r"(?i)\bfatal|uncorrect|exception|\bUE\b", words) is not None
    fact = KernelFact(
        kind="kernel.amdgpu.ras" if device else _hardware_kind(found),
        counted="gpu" if device else "mce",
        severity="critical" if fatal else "warning",
        attributes=attributes,
    )
    return Happening(record=record, text=words[: 4 * MAX_LINE], fact=fact)


def of_gpu(attributes: dict[str, str]) -> bool:
    """Whether the report's own words name a GPU.

    >>> of_gpu({"vendor": "0x10de", "class": "030200"}), of_gpu({"vendor": "0x15b3"})
    (True, False)
    """
    return attributes.get("vendor") in GPU_VENDORS and attributes.get("class", "").startswith(
        GPU_CLASSES
    )


def _hardware_kind(found: re.Match[str] | None) -> str:
    return REPORT if found and found.group("group") else "kernel.mce"


def _plain(record: KernelRecord, line: str, memory: KernelLogState) -> KernelFact | None:
    """The fact of a single line, completed by what came before it."""
    if named := _NVRM_GPU.search(line):
        memory.gpu, memory.gpu_at = normal_pci(named.group("pci")), _when(record)
    if context := _OOM_CONTEXT.search(line):
        memory.oom = _oom_context(context)
        return None
    fact = match(TABLE, line, record.level)
    if fact is None:
        return None
    if "pci" in fact.attributes:
        fact.attributes["pci"] = normal_pci(fact.attributes["pci"])
    if fact.kind == OOM:
        if memory.oom.get("pid") == fact.attributes["pid"]:
            fact.attributes.update(memory.oom)
        memory.oom = {}
    if fact.kind == LOST or fact.attributes.get("xid") == XID_LOST:
        return _fall(fact, record, memory)
    return fact


def _fall(fact: KernelFact, record: KernelRecord, memory: KernelLogState) -> KernelFact | None:
    by_xid = fact.kind == XID
    now = _when(record)
    if not by_xid and "pci" not in fact.attributes and now - memory.gpu_at <= SAME_ERROR:
        fact.attributes["pci"] = memory.gpu
    gpu = fact.attributes.get("pci", "")
    at, said_by_xid = memory.falls.get(gpu, (None, False))
    if at is not None and abs(now - at) <= SAME_FALL and not (by_xid and said_by_xid):
        memory.falls[gpu] = (now, said_by_xid or by_xid)
        return None
    if len(memory.falls) < MAX_LOST_GPUS or gpu in memory.falls:
        memory.falls[gpu] = (now, by_xid)
    if by_xid:
        return fact
    words = {**fact.attributes, "xid": XID_LOST, "inferred": "from the words, without an Xid"}
    return KernelFact(kind=XID, counted="gpu", severity="critical", attributes=words)


def _oom_context(found: re.Match[str]) -> dict[str, str]:
    fields = dict(
        pair.split("=", 1) for pair in found.group("rest").split(",") if pair.count("=") == 1
    )
    known = {"constraint": found.group("constraint"), "pid": fields.get("pid", "")}
    for name, attribute in (("task_memcg", "cgroup"), ("oom_memcg", "limited_cgroup")):
        if name in fields:
            known[attribute] = fields[name]
    return known


def _when(record: KernelRecord) -> float:
    """Seconds on whatever clock the record has; only differences are used."""
    if record.monotonic is not None:
        return record.monotonic
    return record.wall if record.wall is not None else 0.0
