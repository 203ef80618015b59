"""Alerts on ranks: what the engine found, and a net below it."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import AlertGroup, critical, warning

TRAINING = AlertGroup(
    "training",
    (
        critical(
            "Incident",
            "ray_sentinel_incident_active == 1",
            "Job {{ $labels.job }} has an incident: {{ $labels.kind }}",
            "`ray-sentinel incidents` names the culprits and shows the evidence.",
        ),
        critical(
            "RankGone",
            "train_rank_alive == 0 and on (job) count by (job) (train_rank_alive == 1) > 0",
            "Rank {{ $labels.rank }} of {{ $labels.job }} ended, and others run on",
            "The others wait for it: `ray-sentinel incidents` says how it ended.",
            wait="1m",
        ),
        warning(
            "NoStepForLong",
            # The engine knows the job's pace and is faster by far; this holds without it.
            "min by (job) (train_step_age_seconds) > 1800"
            " and on (job) count by (job) (train_rank_alive == 1) > 0",
            "No rank of {{ $labels.job }} ended a step for half an hour",
            "`ray-sentinel status` and `ray-sentinel dump` show where the ranks are.",
        ),
        warning(
            "LossNotFinite",
            # Only NaN differs from itself.
            'train_scalar{name=~".*[Ll]oss.*"} != train_scalar'
            ' or abs(train_scalar{name=~".*[Ll]oss.*"}) == Inf',
            "{{ $labels.name }} is no number: rank {{ $labels.rank }}, {{ $labels.job }}",
            "Go back to the checkpoint before it; look at the learning rate and the data.",
            wait="1m",
        ),
    ),
)
