"""The training's configuration file: YAML that loads, values that can work, keys that are known."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ray_sentinel.doctor import config_rules, yaml_text
from ray_sentinel.doctor.check import (
    Check,
    CheckInput,
    CheckResult,
    Here,
    failure,
    ok,
    skipped,
    warning,
)
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.doctor.yaml_text import Mistake
from ray_sentinel.errors import InputError


class ConfigFileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the file."""

    path: str
    wrong: tuple[Mistake, ...] = ()
    needed_nodes: int | None = None


class ConfigFileCheck(Check[ConfigFileFacts]):
    """Examines the file on the node where the doctor was called."""

    name = "config-file"
    about = "the training's configuration can work"
    facts = ConfigFileFacts
    everywhere = False

    def look(self, plan: RunPlan, here: Here) -> ConfigFileFacts | None:
        """Parse and judge the file; nothing in it is executed."""
        if not plan.config_file:
            return None
        try:
            text = _text(Path(plan.config_file).expanduser())
        except InputError as error:
            unread = Mistake(text=str(error), remedy="give the file that the run will read")
            return ConfigFileFacts(path=plan.config_file, wrong=(unread,))
        found = yaml_text.read(text)
        like = _like(plan.config_like) if plan.config_like else None
        wrong = list(found.mistakes)
        if not any(one.fatal for one in wrong) and not isinstance(found.data, dict):
            what = "is empty" if found.data is None else "holds no keys at its top level"
            wrong.append(Mistake(text=what, remedy="write KEY: VALUE lines"))
        wrong += config_rules.check_values(found.data)
        wrong += config_rules.check_keys(found.data, like)
        return ConfigFileFacts(
            path=plan.config_file,
            wrong=tuple(wrong),
            needed_nodes=config_rules.needed_nodes(found.data),
        )

    def judge(self, case: CheckInput[ConfigFileFacts]) -> Iterable[CheckResult]:
        """One result for each mistake."""
        if not case.seen:
            yield skipped("no configuration file is given (--config-file)")
        for facts in case.seen.values():
            for one in facts.wrong:
                tell = failure if one.fatal else warning
                where = f"line {one.line}: " if one.line else ""
                yield tell(f"{facts.path}: {where}{one.text}", one.remedy)
            nodes = len(case.cluster.joined) if case.cluster else None
            if facts.needed_nodes and nodes is not None and nodes < facts.needed_nodes:
                yield failure(
                    f"{facts.path}: min_nodes is {facts.needed_nodes}, and {nodes} nodes are there",
                    "start the others, or lower min_nodes",
                )
            elif not facts.wrong:
                yield ok(f"{facts.path} can be read, and its values can work")


def _like(path: str) -> object:
    try:
        return yaml_text.read(_text(Path(path))).data
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
    if len(data) > yaml_text.MOST_BYTES:
        raise InputError(f"is larger than {yaml_text.MOST_BYTES >> 20} MiB: no configuration")
    return data.decode("utf-8", "replace")
