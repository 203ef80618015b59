"""Steps, loss, and what the training wrote of itself."""

from __future__ import annotations

from ray_sentinel.store.dashboards.model import (
    JOB,
    Dashboard,
    PanelRow,
    Variable,
    graph,
    stat,
    table,
)

SCALAR = Variable(
    name="tag",
    title="TensorBoard",
    query='label_values({__name__=~"tb_.+"}, __name__)',
    every="tb_.+",
)
OF = '{job=~"$job"}'

PACE = PanelRow(
    "Steps",
    (
        stat("Step of the first rank", "none", f"max(train_step{OF})", width=6),
        stat(
            "Steps that the last rank lags behind",
            "none",
            f"max(max by (job) (train_step{OF}) - min by (job) (train_step{OF}))",
            width=6,
            steps=((2.0, "orange"), (10.0, "red")),
        ),
        stat("Median time of a step", "s", f"quantile(0.5, train_step_seconds{OF})", width=6),
        stat("Steps an hour", "none", f"3600 / quantile(0.5, train_step_seconds{OF})", width=6),
        graph("Step", "none", (f"max by (job) (train_step{OF})", "{{job}}"), width=12),
        graph(
            "Time of a step",
            "s",
            (f"max by (job) (train_step_seconds{OF})", "{{job}} slowest rank"),
            (f"quantile by (job) (0.5, train_step_seconds{OF})", "{{job}} median"),
            (f"min by (job) (train_step_seconds{OF})", "{{job}} fastest rank"),
            width=12,
        ),
        graph(
            "The slowest ranks",
            "s",
            (f"topk(5, train_step_seconds{OF})", "{{job}} rank {{rank}} on {{host}}"),
            about="In a synchronous job all ranks take the time of the slowest; one that is "
            "always at the top works alone, the others wait.",
            width=12,
        ),
        graph(
            "Time since the last step",
            "s",
            (f"topk(5, train_step_age_seconds{OF})", "{{job}} rank {{rank}} on {{host}}"),
            width=12,
        ),
    ),
)
RANKS = PanelRow(
    "Ranks",
    (
        graph(
            "Ranks by phase",
            "none",
            (f"count by (phase) (train_phase{OF})", "{{phase}}"),
            stacked=True,
            width=12,
        ),
        table(
            "Ranks that have ended",
            f"train_rank_alive{OF} == 0",
            width=12,
            about="Empty in a job that is well.",
        ),
    ),
)
ENGINES = PanelRow(
    "Inference engines",
    (
        graph(
            "Requests",
            "none",
            (f"sum by (job, state) (server_requests{OF})", "{{job}} {{state}}"),
            width=12,
            about="Requests that wait while no token is counted are the incident stall.requests.",
        ),
        graph(
            "Tokens a second",
            "none",
            (f"sum by (job, kind) (rate(server_tokens_total{OF}[1m]))", "{{job}} {{kind}}"),
            (f"sum by (job) (server_tokens_per_second{OF})", "{{job}} as the engine says"),
            width=12,
        ),
    ),
)
SCALARS = PanelRow(
    "Values",
    (
        graph(
            "Loss",
            "none",
            ('train_scalar{job=~"$job",name=~".*[Ll]oss.*"}', "{{name}} rank {{rank}}"),
            ('{__name__=~"tb_.*loss.*"}', "{{__name__}} {{run}}"),
            least=None,
            width=12,
        ),
        graph(
            "What the training passed to step()",
            "none",
            (f"avg by (job, name) (train_scalar{OF})", "{{job}} {{name}}"),
            least=None,
            width=12,
            about="The mean of all ranks.",
        ),
        graph("TensorBoard: step", "none", ("tb_step", "{{run}} {{attempt}}"), width=12),
        graph(
            "TensorBoard: $tag",
            "none",
            ('{__name__=~"$tag"}', "{{__name__}} {{run}} {{attempt}}"),
            least=None,
            width=12,
            about="Each value stands at the time at which the training wrote it.",
        ),
    ),
)

TRAINING = Dashboard(
    name="training",
    title="Training",
    about="Steps, loss, and what the training wrote of itself.",
    rows=(PACE, RANKS, ENGINES, SCALARS),
    variables=(JOB, SCALAR),
)
