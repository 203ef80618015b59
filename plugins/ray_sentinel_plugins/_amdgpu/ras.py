"""Reliability: errors of the GPU's blocks, and memory pages out of use.

Source: the kernel's Documentation/gpu/amdgpu/ras.rst. ``ras/<block>_err_count`` (older) and
``ras/aca_<block>`` (cards with the accelerator check architecture) hold ``ue: N`` and ``ce: N``,
uncorrected and corrected, and since 6.9 ``de: N``, deferred. Some kernels have both forms, of the
same counts. While the GPU is being reset they say "Query currently inaccessible".

A GPU that is asleep (runtime power management) is not woken for them: its registers read as all
ones, and the driver adds those to its counts for good. So it is not asked then.

A defect of some kernels leaves a reader of these files in D state for ever; the caller reads them
apart from everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.api import Metric, Sample
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._files import Files, counter

BLOCKS = {"umc": "umc", "xgmi_wafl": "xgmi", "gfx": "gfx", "mmhub": "mmhub", "sdma": "sdma"}
"""Our name for each block that has series of its own, by the driver's name."""
KINDS = ("ue", "ce")
BAD_PAGE = "bad_page"
ASLEEP = frozenset({"suspended", "suspending", "resuming"})


def _metric(block: str, kind: str, words: str) -> Metric:
    name = f"hw_gpu_ras_{block}_{kind}_total"
    return Metric(name, "counter", f"Errors of the block {block} that were {words}.", ("gpu",))


COUNTS = {
    (block, kind): _metric(ours, kind, words)
    for block, ours in BLOCKS.items()
    for kind, words in (("ue", "not corrected"), ("ce", "corrected"))
}
METRICS = (*COUNTS.values(), gpu_metrics.ECC_CORRECTED, gpu_metrics.ECC_UNCORRECTED)


class Reliability(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU's ``ras`` folder says."""

    errors: dict[str, dict[str, int]]
    """Counts of errors of each block that answered, by kind."""
    blocks: frozenset[str]
    """Names of all existing blocks."""
    pages: dict[str, int] | None = None
    """Number of pages in each state (R retired, P pending, F failed); None if the driver does not
    report it."""


def read(files: Files, device: Path) -> Reliability:
    """All blocks of one GPU."""
    folder = device / "ras"
    sources: dict[str, list[Path]] = {}
    for name in files.names(folder):
        if block := block_of(name):
            sources.setdefault(block, []).append(folder / name)
    errors = {}
    status = files.word(device / "power/runtime_status", "[a-z]+")
    for block, paths in () if status in ASLEEP else sources.items():
        # ``names`` sorts aca_* before *_err_count; either serves where the other does not answer.
        for path in reversed(paths):
            counts = parse_counts(files.text(path, expected=True) or "")
            if files.sound(path, counts, KINDS):
                errors[block] = counts
                break
    pages = files.text(folder / "gpu_vram_bad_pages")
    return Reliability(
        errors=errors,
        blocks=frozenset(sources),
        pages=None if pages is None else parse_pages(pages),
    )


def samples(found: Reliability, known: frozenset[str], gpu: str) -> Iterator[Sample]:
    """The series of one GPU. ``known``: the blocks that it ever had; the sums over all blocks are
    left out while one of them is silent, because a counter that falls looks like a restart."""
    for (block, kind), metric in COUNTS.items():
        if (number := found.errors.get(block, {}).get(kind)) is not None:
            yield metric(number, gpu)
    if found.errors and known <= frozenset(found.errors):
        for kind, metric in (
            ("ce", gpu_metrics.ECC_CORRECTED),
            ("ue", gpu_metrics.ECC_UNCORRECTED),
        ):
            numbers = [counts.get(kind) for counts in found.errors.values()]
            present = [number for number in numbers if number is not None]
            if len(present) == len(numbers):
                yield metric(sum(present), gpu)
    if found.pages is not None:
        retired = found.pages.get("R", 0) + found.pages.get("F", 0)
        yield gpu_metrics.REMAPPED_ROWS(retired, gpu, BAD_PAGE)
        yield gpu_metrics.REMAP_PENDING(found.pages.get("P", 0), gpu, BAD_PAGE)


def block_of(name: str) -> str | None:
    """The block that a file of the ``ras`` folder counts for, or None.

    >>> block_of("umc_err_count"), block_of("aca_umc"), block_of("features")
    ('umc', 'umc', None)
    """
    found = re.fullmatch(r"([a-z0-9_]+)_err_count|aca_([a-z0-9_]+)", name)
    return (found.group(1) or found.group(2)) if found else None


def parse_counts(text: str) -> dict[str, int]:
    """``ue: 0``, ``ce: 12`` → counts by kind; empty for a text of any other form."""
    counts = {}
    for kind, number in re.findall(r"^(ue|ce|de): *(\d+)$", text, re.MULTILINE):
        value = counter(number)
        if value is not None:
            counts[kind] = value
    return counts


def parse_pages(text: str) -> dict[str, int]:
    """``gpu_vram_bad_pages``, a page a line: ``0x0000005c : 0x00001000 : R``, by state."""
    pages: dict[str, int] = {}
    for state in re.findall(r"^0x[0-9a-f]+ : 0x[0-9a-f]+ : ([RPF])\s*$", text, re.MULTILINE):
        pages[state] = pages.get(state, 0) + 1
    return pages
