"""Cases of the rules about ranks."""

from tests.support.alert_cases.case import Case, fires, quiet

ALIVE = 'train_rank_alive{{host="n1",job="llm",rank="{}"}}'
AGE = 'train_step_age_seconds{{host="n1",job="llm",rank="{}"}}'
LOSS = 'train_scalar{host="n1",job="llm",rank="0",name="loss"}'
OF_LOSS = {"host": "n1", "job": "llm", "rank": "0", "name": "loss"}
ACTIVE = 'ray_sentinel_incident_active{host="n1",job="llm",kind="rank-dead"}'

CASES: tuple[Case, ...] = (
    fires(
        "Incident",
        "one that lasts",
        {ACTIVE: "_x10 1x60"},
        {"host": "n1", "job": "llm", "kind": "rank-dead"},
    ),
    quiet("Incident", "resolved: its series has left", {ACTIVE: "1x10 stale"}),
    fires(
        "RankGone",
        "the others run on",
        {ALIVE.format(0): "1x60", ALIVE.format(1): "1x20 0x60"},
        {"host": "n1", "job": "llm", "rank": "1"},
    ),
    quiet(
        "RankGone",
        "all ended: the job is over",
        {ALIVE.format(0): "1x20 0x60", ALIVE.format(1): "1x20 0x60"},
    ),
    quiet(
        "RankGone",
        "another job runs on",
        {
            ALIVE.format(0): "0x60",
            'train_rank_alive{host="n1",job="next",rank="0"}': "1x60",
        },
    ),
    fires(
        "NoStepForLong",
        "all ranks",
        {
            ALIVE.format(0): "1x100",
            AGE.format(0): "0+30x100",
            AGE.format(1): "10+30x100",
        },
        {"job": "llm"},
        at="40m",
    ),
    quiet(
        "NoStepForLong",
        "one rank still steps",
        {ALIVE.format(0): "1x100", AGE.format(0): "0+30x100", AGE.format(1): "1x100"},
        at="40m",
    ),
    quiet(
        "NoStepForLong",
        "the job is over",
        {ALIVE.format(0): "0x100", AGE.format(0): "0+30x100"},
        at="40m",
    ),
    fires("LossNotFinite", "NaN", {LOSS: "2x20" + " NaN" * 40}, OF_LOSS),
    fires("LossNotFinite", "infinite", {LOSS: "2x20" + " Inf" * 40}, OF_LOSS),
    quiet("LossNotFinite", "a number", {LOSS: "2x60"}),
    quiet(
        "LossNotFinite",
        "something else is NaN",
        {'train_scalar{host="n1",job="llm",rank="0",name="eval_score"}': " NaN" * 60},
    ),
)
