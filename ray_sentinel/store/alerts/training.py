"""Alerts on ranks: what the engine found, and a net below it."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import Alert, AlertGroup

TRAINING = AlertGroup(
    "training",
    (
        Alert(
            name="Incident",
            expr="ray_sentinel_incident_active == 1",
            severity="critical",
            summary="Job {{ $labels.job }} has an incident: {{ $labels.kind }}",
            action="`ray-sentinel incidents` names the culprits and shows the evidence.",
        ),
        Alert(
            name="RankGone",
            expr="train_rank_alive == 0 and on (job) count by (job) (train_rank_alive == 1) > 0",
            severity="critical",
            wait="1m",
            summary="Rank {{ $labels.rank }} of {{ $labels.job }} ended, and others run on",
            action="The others wait for it: `ray-sentinel incidents` says how it ended.",
        ),
        Alert(
            name="NoStepForLong",
            # The engine knows the job's pace and is faster by far; this holds without it.
            expr="min by (job) (train_step_age_seconds) > 1800"
            " and on (job) count by (job) (train_rank_alive == 1) > 0",
            severity="warning",
            summary="No rank of {{ $labels.job }} ended a step for half an hour",
            action="`ray-sentinel status` and `ray-sentinel dump` show where the ranks are.",
        ),
        Alert(
            name="LossNotFinite",
            # Only NaN differs from itself.
            expr='train_scalar{name=~".*[Ll]oss.*"} != train_scalar'
            ' or abs(train_scalar{name=~".*[Ll]oss.*"}) == Inf',
            severity="warning",
            wait="1m",
            summary="{{ $labels.name }} is no number: rank {{ $labels.rank }}, {{ $labels.job }}",
            action="Go back to the checkpoint before it; look at the learning rate and the data.",
        ),
    ),
)
