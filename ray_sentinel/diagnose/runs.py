"""Several runs of event files in one job: which of them are the training's."""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel

_EVALUATION = re.compile(
    r"(?:^|[/_.-])(?:val|valid|validation|eval|evaluation|test)(?:[/_.-]|$)", re.IGNORECASE
)


def training_rows(panel: SeriesPanel) -> SeriesPanel:
    """The panel without the runs of evaluations, if there are others.

    Keras writes ``train`` and ``validation`` beside each other, estimators ``eval``, with the same
    tags in them: the loss of one is not a sample of the other's.
    """
    if not any(_evaluates(row) for row in panel.rows):
        return panel
    kept = panel.pick(lambda row: not _evaluates(row))
    return panel if kept.empty else kept


def evaluates(run: str) -> bool:
    """Whether a run's folder is named like one of evaluations.

    >>> evaluates("exp1/validation"), evaluates("exp1/train")
    (True, False)
    """
    return bool(_EVALUATION.search(run))


def _evaluates(row: SeriesOwner) -> bool:
    return evaluates(dict(row.labels).get("run", ""))
