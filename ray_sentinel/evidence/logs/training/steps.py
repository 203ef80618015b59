"""Step lines of training frameworks: which step, how long, which loss.

Formats: MaxText ``completed step: 7, seconds: 1.2, ...``; tqdm bars (Transformers, torchspec's
``Training: 45%``, verl's ``Training Progress``); Lightning's ``Epoch 3: 45%|..| 450/1000``;
Megatron's `` iteration 10/ 500 | ... |``; verl's ``step:12 - ...``; torchtitan, NeMo, DeepSpeed,
nanoGPT, mmengine, timm, torchvision, Composer, fairseq; Transformers' ``{'loss': ..., 'epoch':
...}``; and, last, any line that gives a step number beside a loss or a duration. (Those that give
a number alone: ``bare_steps``.)
"""

from __future__ import annotations

import math

import msgspec

from ray_sentinel import regex as re

_NUMBER = (
    r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?nan(?:\.0)?|[-+]?inf(?:inity)?(?:\.0)?"
)

_MAXTEXT = re.compile(r"completed step: (?P<step>\d+), seconds: (?P<seconds>[\d.]+)")
_BAR = re.compile(
    r"(?P<title>[^|\r\n]{0,120}?)(?P<percent>\d{1,3})%\s?\|[^|\r\n]{0,400}\|"
    r"\s*(?P<step>[\d.]+[kKMG]?)/(?P<total>[\d.]+[kKMG]?)"
    r"\s*[\[(](?P<elapsed>[\d:]+)\s?(?:<|•)\s?(?P<left>[\d:?-]+|\d+ days?, [\d:]+),?"
    r"\s*(?P<rate>[\d.]+|\?)?\s*(?P<unit>s/\w+|\w+/s)?"
)
_MEGATRON = re.compile(r"\biteration\s+(?P<step>\d+)/\s*(?P<total>\d+)\s*\|")
_VERL = re.compile(r"(?:^|\s|\))step:\s?(?P<step>\d+) - ")
_NEMO = re.compile(
    r"Training epoch \d+, iteration (?P<micro>\d+)/\d+ .*?global_step: (?P<step>\d+)"
)
_MMENGINE = re.compile(r"(?:Epoch\(train\)|Epoch) *\[\d+\]\s*\[ *(?P<step>\d+)/(?P<total>\d+)\]")
_ITER_TRAIN = re.compile(r"Iter\(train\) *\[ *(?P<step>\d+)/(?P<total>\d+)\]")
_TIMM = re.compile(r"Train: \d+ \[ *(?P<step>\d+)/(?P<total>\d+)")
_TORCHVISION = re.compile(r"Epoch: \[\d+\]\s*\[ *(?P<step>\d+)/(?P<total>\d+)\]")
_COMPOSER = re.compile(r"\[batch=(?P<step>\d+)(?:/(?P<total>\d+))?\]")
_DEEPSPEED = re.compile(r"(?:\bsteps: |\bglobal_step=|\] step=)(?P<step>\d+)\b")
PLAIN = re.compile(
    r"\b(?:global[ _-]?steps?|train(?:ing)?[ _/-]?step|optimizer[ _-]step|step|iter(?:ation)?"
    r"|update|num_updates|batch)s?\b"
    r"['\"]?\s*(?:=|:|#|-|at\b)?\s*[\[(]?\s*(?P<step>\d+)\b(?:\s*(?:/|of)\s*(?P<total>\d+))?",
    re.IGNORECASE,
)
_LOSS = re.compile(
    r"(?<![A-Za-z])(?:reduced_train_|train(?:ing)?[_/ ]|lm |actor/|total_|pg_|critic/|policy_)?loss"
    rf"['\"]?\s*(?:(?:[:=]|is|was)\s*)?\(?(?P<loss>{_NUMBER})(?!\w|\.\d)",
    re.IGNORECASE,
)
_NORM = re.compile(
    r"(?:grad(?:ient)?[ _-]?norm|\bgnorm)['\"]?\s*[:=]?\s*['\"]?(?:tensor\()?"
    rf"(?P<norm>{_NUMBER})\b",
    re.IGNORECASE,
)
"""A gradient norm that is not a number. It stands for the loss on a line without one: Megatron
leaves the loss out of skipped iterations."""
_SECONDS = re.compile(
    r"(?:seconds|step_time|step time|time/step|timing_s/step|perf/time_per_step|iter time \(s\)"
    r"|train_step_timing in s|(?P<vague>elapsed|dt|time))"
    r"['\"]?\s*[:=]?\s*(?P<seconds>\d+(?:\.\d+)?)\s?(?P<unit>ms|s|sec|seconds)?\b",
    re.IGNORECASE,
)
_PER_STEP = re.compile(
    r"\b(?P<seconds>\d+(?:\.\d+)?)\s?(?P<unit>ms|s|secs?|seconds)\s?(?:/|per )"
    r"\s?(?:step|iter(?:ation)?)\b",
    re.IGNORECASE,
)
_TIMING = re.compile(r"\bTIMING step=(?P<step>\d+): step=(?P<seconds>\d+(?:\.\d+)?)s\b")
_PERF = re.compile(r"\bperf (?P<step>\d+): \{")
_STEP_TIME = re.compile(r"step_time['\"]?: ?(?P<seconds>\d+(?:\.\d+)?)")
_TRAINED_BAR = re.compile(r"\bTraining (?:[Bb]atches|[Ss]teps?|[Pp]rogress)\b")
_WEIGHTS_BAR = re.compile(r"\b[Ww]eights?\b")
_MEGATRON_MS = re.compile(r"elapsed time per iteration \(ms\): (?P<ms>[\d.]+)")
_TOKENS = re.compile(
    r"(?:tokens?/s(?:ec(?:ond)?)?(?:/device|/gpu)?|tps|tokens_per_sec(?:ond)?|perf/throughput|Tokens/s/device)"
    r"['\"]?\s*[:=]?\s*(?P<tokens>[\d,]+(?:\.\d+)?)",
    re.IGNORECASE,
)
_HF = re.compile(
    rf"\{{'loss': '?(?P<loss>{_NUMBER})'?,.*?'epoch': '?(?P<epoch>[\d.]+)'?", re.IGNORECASE
)
NOT_TRAINING = re.compile(
    r"\b(?:eval|valid|test|predict|sampl|generat|map|tokeniz|download|fetch|captur|shard|load|sav|warm|"
    r"filter|process|convert|quantiz|rollout|upload|packing|cache|compil|sanity|render|export|init|collat)",
    re.IGNORECASE,
)
_MEASURES = re.compile(
    r"loss|s/it|it/s|sec|time|tok|samples/s|reward|grad|lr\b|training", re.IGNORECASE
)

HINTS = (
    b"step",
    b"Step",
    b"iter",
    b"it/s",
    b"/it",
    b"%|",
    b"poch",
    b"batch=",
    b"update",
    b"'loss'",
)
"""The words of which every step line contains one."""

_FAR = 1e18
"""The highest number that a step may have."""


class ReportedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step as a log line reports it. ``step`` is numbered as the framework does."""

    step: int | None = None
    total: int | None = None
    seconds: float | None = None
    loss: float | None = None
    norm: float | None = None
    """The norm of the gradients."""
    of: str = "loss"
    """What ``loss`` is: a line may give the norm of the gradients alone, where that is not a
    number."""
    tokens_per_second: float | None = None
    epoch: float | None = None
    left: bool = False
    """The line is a progress bar that may move without a step being done (0 of n)."""
    per_epoch: bool = False
    """``total`` counts the steps of one epoch, not those of the training."""
    bare: bool = False
    """The line says little more than a number, as other counters do too."""


def parse_step(text: str) -> ReportedStep | None:
    """The training step that ``text`` (one line without launcher prefixes) reports, or None.

    Evaluation, loading and data-preparation bars are no training steps.
    """
    if len(text) > 20_000:
        text = text[:20_000]
    if match := _MAXTEXT.search(text):
        return _made(text, match, parse_number(match.group("seconds")))
    if "%" in text and (match := _BAR.search(text)):
        return _bar(text, match)
    if match := _TIMING.search(text):
        return _made(text, match, parse_number(match.group("seconds")))
    if match := _PERF.search(text):
        took = _STEP_TIME.search(text)
        return _made(text, match, parse_number(took.group("seconds")) if took else None)
    if "global_step: " in text and (match := _NEMO.search(text)):
        return _made(text, match, _seconds(text))
    if "iteration" in text and (match := _MEGATRON.search(text)):
        ms = _MEGATRON_MS.search(text)
        return _made(text, match, _thousandth(ms.group("ms")) if ms else None)
    for pattern in (_VERL, _ITER_TRAIN, _MMENGINE, _TIMM, _TORCHVISION, _COMPOSER):
        if match := pattern.search(text):
            return _made(text, match, _seconds(text))
    if match := _HF.search(text):
        loss = _trained(text, match)
        return ReportedStep(loss=loss, norm=_norm(text), epoch=parse_number(match.group("epoch")))
    return _plain(text)


def _trained(text: str, match: re.Match[str]) -> float | None:
    """Transformers leaves losses that are no numbers out of its mean: 0.0 is left then."""
    loss = parse_number(match.group("loss"))
    norm = _norm(text)
    return math.nan if loss == 0 and norm is not None and math.isnan(norm) else loss


def _norm(text: str) -> float | None:
    match = _NORM.search(text) if "norm" in text.lower() else None
    return parse_number(match.group("norm")) if match is not None else None


def _plain(text: str) -> ReportedStep | None:
    match = _DEEPSPEED.search(text) or PLAIN.search(text)
    if match is None or not _MEASURES.search(text):
        return None
    if NOT_TRAINING.search(text[: match.start()][-60:]):
        return None
    loss, seconds = _LOSS.search(text), _seconds(text)
    rate = "it/s" in text or "s/it" in text or "samples/s" in text.lower()
    said = re.search(r"\btraining: step \d+|\btrain(?:ing)?[ _]step\b", text, re.IGNORECASE)
    if loss is None and seconds is None and not rate and not said:
        return None
    return _made(text, match, seconds)


def _made(text: str, match: re.Match[str], seconds: float | None) -> ReportedStep:
    found = match.groupdict()
    stated = _LOSS.search(text)
    loss = parse_number(stated.group("loss")) if stated else None
    norm = _norm(text)
    instead = stated is None and norm is not None and math.isnan(norm)
    tokens = _TOKENS.search(text)
    total = found.get("total")
    return ReportedStep(
        step=whole(found["step"] or "0"),
        total=whole(total) if total else None,
        seconds=seconds,
        loss=norm if instead else loss,
        norm=norm,
        of="gradient norm" if instead else "loss",
        tokens_per_second=parse_number(tokens.group("tokens").replace(",", "")) if tokens else None,
        per_epoch="poch" in text,
    )


def _bar(text: str, match: re.Match[str]) -> ReportedStep | None:
    title = match.group("title")
    if NOT_TRAINING.search(title) and not _TRAINED_BAR.search(title):
        return None
    if _WEIGHTS_BAR.search(title):
        return None
    step, total = _scaled(match.group("step")), _scaled(match.group("total"))
    rate, unit = match.group("rate"), match.group("unit") or ""
    if unit.lower() in ("b/s", "kb/s", "mb/s", "gb/s") or unit.endswith("B/s"):
        return None
    seconds = None
    speed = parse_number(rate) if rate else None
    if speed:
        seconds = speed if unit.startswith("s/") else 1 / speed
    loss = _LOSS.search(text, match.end())
    return ReportedStep(
        step=step,
        total=total,
        seconds=seconds,
        loss=parse_number(loss.group("loss")) if loss else None,
        norm=_norm(text[match.end() :]),
        left=step == 0,
        per_epoch="poch" in text,
    )


def whole(digits: str) -> int:
    """The integer in ``text``; thousands of digits give a number beyond any count instead of an
    error."""
    return int(digits) if len(digits) <= 18 else int(_FAR)


def _scaled(text: str) -> int:
    factor = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1)
    number = text[:-1] if factor != 1 else text
    try:
        return int(min(float(number) * factor, _FAR))
    except ValueError:
        return 0


def _seconds(text: str) -> float | None:
    match = _PER_STEP.search(text) or _SECONDS.search(text)
    if match is None:
        return None
    said = match.group("seconds")
    if match.groupdict().get("vague") and not match.group("unit") and "." not in said:
        return None  # a time of day or of the epoch, in some unit
    value = float(said)
    return value / 1000 if match.group("unit") == "ms" else value


def _thousandth(text: str) -> float | None:
    number = parse_number(text)
    return number / 1000 if number is not None else None


def parse_number(text: str) -> float | None:
    """The number that ``text`` is, including nan and inf; None if it is not one."""
    if text[-2:] == ".0" and text[-3:-2].isalpha():
        text = text[:-2]  # a progress bar pads "nan" as it would a number
    try:
        return float(text)
    except ValueError:
        return None
