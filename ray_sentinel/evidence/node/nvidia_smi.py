"""What ``nvidia-smi -q -x`` prints, read into records. Pure.

The XML is read, not ``--query-gpu``, which fails as a whole for one field that a driver does not
know; in the XML such an element is absent, or ``N/A``. Memory is in MiB, power in watts,
utilization in percent.

A process can give itself any name, also one that is XML or breaks it. So a GPU's data is read only
from the text before its processes, which come last, and an answer with more GPUs than
``attached_gpus`` is not believed.
"""

from __future__ import annotations

import math
from xml.etree import ElementTree

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import InputError
from ray_sentinel.model.health import GpuProcess, GpuState

_END = "</nvidia_smi_log>"
_PROCESSES = re.compile(r"(?s)<processes>.*?</gpu>")
_POWER = (
    "gpu_power_readings/instant_power_draw",
    "gpu_power_readings/power_draw",
    "gpu_power_readings/average_power_draw",
    "power_readings/power_draw",
)
"""Where nvidia-smi's answer may hold the power, in the order in which it is looked for: drivers
from 550 on, from 530 on, and older ones name it differently."""


class SmiGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, as nvidia-smi describes it."""

    state: GpuState
    processes: tuple[GpuProcess, ...] = ()
    """The processes that compute on the GPU, as far as this container may see them."""
    ecc_uncorrected: int | None = None
    """Number of uncorrected ECC errors since the driver was loaded."""
    remap_pending: bool = False
    remap_failed: bool = False
    retire_pending: bool = False
    recovery: str = ""
    """The recovery that the driver asks for: "Reset", "Reboot", "Drain P2P", ...; empty where it
    asks for none."""

    @property
    def label(self) -> str:
        """Its name and its UUID, for people."""
        return f"{self.state.name} {self.state.uuid}"


class SmiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of nvidia-smi."""

    driver: str
    cuda: str
    gpus: tuple[SmiGpu, ...] = ()

    @property
    def states(self) -> tuple[GpuState, ...]:
        """The GPUs, in the driver's order."""
        return tuple(gpu.state for gpu in self.gpus)

    @property
    def processes(self) -> tuple[GpuProcess, ...]:
        """The processes that compute on any of them."""
        return tuple(process for gpu in self.gpus for process in gpu.processes)


def parse(text: str) -> SmiAnswer:
    """Read the XML, whatever is printed around it. Raises InputError if there is none."""
    # A document type would let entities be declared; nvidia-smi's names only a DTD, unneeded.
    start, end = text.find("<nvidia_smi_log"), text.rfind(_END)
    if start < 0:
        raise InputError("nvidia-smi -q -x printed no XML: it has no element nvidia_smi_log")
    log = text[start : end + len(_END)] if end > start else text[start:]
    without = _PROCESSES.sub("</gpu>", log)
    try:
        root = ElementTree.fromstring(without)
    except ElementTree.ParseError as error:
        raise InputError(f"nvidia-smi -q -x printed no XML: {error}") from None
    gpus, attached = root.findall("gpu"), _text(root, "attached_gpus")
    if "<!" in without or (_is_count(attached) and len(gpus) > int(attached)):
        raise InputError("nvidia-smi -q -x cannot be trusted: a process has a name that forges XML")
    processes = _process_lists(log, len(gpus))
    return SmiAnswer(
        driver=_text(root, "driver_version"),
        cuda=_text(root, "cuda_version"),
        gpus=tuple(
            _gpu(gpu, str(index), list_of)
            for index, (gpu, list_of) in enumerate(zip(gpus, processes, strict=True))
        ),
    )


def _process_lists(log: str, gpus: int) -> list[ElementTree.Element | None]:
    """The processes of each GPU; none if a name breaks the XML."""
    try:
        found = ElementTree.fromstring(log).findall("gpu")
    except ElementTree.ParseError:
        found = []
    return [gpu.find("processes") for gpu in found] if len(found) == gpus else [None] * gpus


def _gpu(element: ElementTree.Element, index: str, processes: ElementTree.Element | None) -> SmiGpu:
    recovery = _text(element, "gpu_recovery_action")
    retired = ("retired_pages/pending_retirement", "retired_pages/pending_blacklist")
    power = (_number(_text(element, path)) for path in _POWER)
    return SmiGpu(
        state=GpuState(
            index=index,
            uuid=_text(element, "uuid"),
            name=_text(element, "product_name"),
            utilization_percent=_number(_text(element, "utilization/gpu_util")),
            memory_used_bytes=_bytes(_text(element, "fb_memory_usage/used")),
            memory_total_bytes=_bytes(_text(element, "fb_memory_usage/total")),
            power_watts=next((watts for watts in power if watts is not None), None),
            temperature_celsius=_number(_text(element, "temperature/gpu_temp")),
        ),
        processes=tuple(
            GpuProcess(
                gpu=index,
                pid=int(pid),
                name=_text(item, "process_name"),
                memory_bytes=_bytes(_text(item, "used_memory")),
            )
            for item in (processes.iterfind("process_info") if processes is not None else ())
            if "C" in _text(item, "type") and _is_pid(pid := _text(item, "pid"))
        ),
        ecc_uncorrected=_uncorrected(element.find("ecc_errors/volatile")),
        remap_pending=_text(element, "remapped_rows/remapped_row_pending") == "Yes",
        remap_failed=_text(element, "remapped_rows/remapped_row_failure") == "Yes",
        retire_pending=any(_text(element, path) == "Yes" for path in retired),
        recovery="" if recovery in ("None", "N/A") else recovery,
    )


def _uncorrected(volatile: ElementTree.Element | None) -> int | None:
    """All uncorrectable errors; drivers before 450 count them as double-bit errors."""
    if volatile is None:
        return None
    counts = [
        int(text)
        for item in (
            *(item for item in volatile if "uncorrectable" in item.tag),
            *volatile.iterfind("double_bit/total"),
        )
        if _is_count(text := (item.text or "").strip())
    ]
    return sum(counts) if counts else None


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _is_pid(text: str) -> bool:
    return _is_count(text) and len(text) <= 9


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _number(text: str) -> float | None:
    """A number without its unit."""
    try:
        number = float(text.partition(" ")[0])
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _bytes(text: str) -> int | None:
    mebibytes = _number(text)
    return int(mebibytes * (1 << 20)) if mebibytes is not None else None
