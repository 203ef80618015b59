"""What ``nvidia-smi -q -x`` says of the GPUs of this node.

The program, not the library: a driver that hangs then holds a child of ours with a deadline, and
not the doctor. Elements that a driver does not know are absent, or ``N/A``.
"""

from __future__ import annotations

import shutil
from functools import lru_cache
from xml.etree import ElementTree

import msgspec

from ray_sentinel import process
from ray_sentinel.errors import InputError, SentinelError

SECONDS = 8.0
"""Eight GPUs without persistence mode need about four."""


class SmiGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU."""

    uuid: str
    name: str
    used_bytes: int | None = None
    total_bytes: int | None = None
    programs: tuple[str, ...] = ()
    """"pid name" of what computes on it, as far as this container may see."""
    ecc_uncorrected: int | None = None
    """Since the driver was loaded."""
    remap_pending: bool = False
    remap_failed: bool = False
    retire_pending: bool = False
    recovery: str = ""
    """What the driver asks for: "Reset", "Reboot", "Drain P2P", ...; empty where nothing."""


class Smi(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    driver: str
    cuda: str
    gpus: tuple[SmiGpu, ...] = ()


def read() -> Smi | None:
    """Ask the driver; None where there is no ``nvidia-smi``. Raises SentinelError."""
    program = shutil.which("nvidia-smi")
    return _once(program) if program else None


@lru_cache(maxsize=4)
def _once(program: str) -> Smi:
    """Several checks ask the same, in a process that lives for seconds."""
    return ask(program)


def ask(program: str) -> Smi:
    """Ask the driver now. Raises SentinelError."""
    done = process.run([program, "-q", "-x"], deadline=SECONDS)
    if not done.ok:
        said = done.stdout.decode("utf-8", "replace").strip().splitlines()[:1]
        raise SentinelError(" ".join([done.explain(), *said]))
    return parse(done.stdout.decode("utf-8", "replace"))


def parse(text: str) -> Smi:
    """Read the XML. Raises InputError where it is none."""
    # A document type would let entities be declared; nvidia-smi's names only a DTD, unneeded.
    start = text.find("<nvidia_smi_log")
    if start < 0:
        raise InputError("nvidia-smi -q -x printed no XML: it has no element nvidia_smi_log")
    try:
        root = ElementTree.fromstring(text[start:])
    except ElementTree.ParseError as error:
        raise InputError(f"nvidia-smi -q -x printed no XML: {error}") from None
    return Smi(
        driver=_text(root, "driver_version"),
        cuda=_text(root, "cuda_version"),
        gpus=tuple(_gpu(element) for element in root.iter("gpu")),
    )


def _gpu(element: ElementTree.Element) -> SmiGpu:
    return SmiGpu(
        uuid=_text(element, "uuid"),
        name=_text(element, "product_name"),
        used_bytes=_mib(_text(element, "fb_memory_usage/used")),
        total_bytes=_mib(_text(element, "fb_memory_usage/total")),
        programs=tuple(
            f"{_text(item, 'pid')} {_text(item, 'process_name')}".strip()
            for item in element.iterfind("processes/process_info")
            if "C" in _text(item, "type")
        ),
        ecc_uncorrected=_uncorrected(element.find("ecc_errors/volatile")),
        remap_pending=_text(element, "remapped_rows/remapped_row_pending") == "Yes",
        remap_failed=_text(element, "remapped_rows/remapped_row_failure") == "Yes",
        retire_pending="Yes"
        in (
            _text(element, "retired_pages/pending_retirement"),
            _text(element, "retired_pages/pending_blacklist"),
        ),
        recovery=_recovery(_text(element, "gpu_recovery_action")),
    )


def _recovery(text: str) -> str:
    return "" if text in ("None", "N/A") else text


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
        if (text := (item.text or "").strip()).isdigit()
    ]
    return sum(counts) if counts else None


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _mib(text: str) -> int | None:
    number = text.removesuffix("MiB").strip()
    return int(number) << 20 if number.isdigit() else None
