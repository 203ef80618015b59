"""Ranks among Ray's actors: numbered, named and counted by what the control store lists."""

from ray_sentinel.actors.coordinator.ray.actors import (
    LOOK_SECONDS,
    MOST_RUNS,
    Actor,
    RayActors,
    TrainRunAttempts,
    script,
    workers,
)
from ray_sentinel.clock import FakeClock

JOB = "02000000"
ENTRY = {JOB: "/venv/bin/python3.11 -u /data/train.py --lr 3"}


def actor(pid: int, started: float, **more: object) -> Actor:
    told = {"kind": "Trainer", "job": JOB, "owner": "10.0.0.1:77", "node": "n1", "id": f"a{pid}"}
    return Actor(**{**told, "pid": pid, "started": started, **more})  # type: ignore[arg-type]


def orders(*actors: Actor, entry=ENTRY) -> dict[int, tuple[str, int, int]]:
    found = workers(actors, entry, TrainRunAttempts())
    return {w.pid: (w.group, w.order, w.size) for some in found.values() for w in some}


def test_in_the_order_of_their_starts():
    assert orders(actor(7, 3.0), actor(5, 9.0), actor(6, 1.0)) == {
        6: ("train-2.Trainer", 0, 3),
        7: ("train-2.Trainer", 1, 3),
        5: ("train-2.Trainer", 2, 3),
    }


def test_names_and_bundles_tell_more_than_starts():
    named = orders(actor(7, 1.0, name="worker_10"), actor(8, 2.0, name="worker_9"))
    assert (named[8][1], named[7][1]) == (0, 1)
    bundled = orders(
        actor(7, 1.0, name="w0", bundle=1, group="g"), actor(8, 2.0, name="w1", bundle=0, group="g")
    )
    assert (bundled[8][1], bundled[7][1]) == (0, 1)
    same = orders(actor(7, 2.0, name="w3"), actor(8, 1.0, name="x3"))
    assert (same[8][1], same[7][1]) == (0, 1)


def test_classes_owners_and_jobs_are_kept_apart():
    found = orders(
        actor(1, 1.0),
        actor(2, 2.0, kind="Critic"),
        actor(3, 3.0, owner="10.0.0.1:78"),
        actor(4, 4.0, job="03000000"),
    )
    assert {size for _, _, size in found.values()} == {1}
    assert found[2][0] == "train-2.Critic"
    assert found[4][0] == "job-3.Trainer"


def test_the_attempts_of_ray_train_are_counted_over_the_dead():
    train = {"kind": "RayTrainWorker"}
    old = [actor(p, p, group="g1", alive=False, **train) for p in (1, 2)]
    new = [actor(p, p, group="g2", **train) for p in (3, 4)]
    (found,) = workers([*new, *old], ENTRY, TrainRunAttempts()).values()
    assert [(w.pid, w.attempt, w.order, w.size) for w in found] == [(3, 1, 0, 2), (4, 1, 1, 2)]
    own_groups = [actor(p, p, group=f"g{p}") for p in (5, 6)]
    assert {w.attempt for w in workers(own_groups, ENTRY, TrainRunAttempts())["n1"]} == {0}


def test_the_runs_whose_attempts_are_counted_are_bounded():
    attempts = TrainRunAttempts()
    train = {"kind": "RayTrainWorker"}
    for number in range(2 * MOST_RUNS):
        ended = actor(9, 1.0, group=f"g{number}", owner=f"10.0.0.1:{number}", **train)
        assert attempts.of(ended) == 0
        # One that lives is seen in every look.
        assert attempts.of(actor(5, 1.0, group="first", job="05000000", **train)) == 0
    assert len(attempts.groups) == MOST_RUNS
    assert attempts.of(actor(6, 1.0, group="second", job="05000000", **train)) == 1


def test_actors_that_have_not_started_have_no_process():
    assert workers([actor(0, 0.0), actor(5, 1.0, node="")], ENTRY, TrainRunAttempts()) == {}


def test_asked_now_and_then_and_sent_when_new():
    clock = FakeClock()
    table = [actor(1, 1.0)]
    asked: list[bool] = []

    def ask(everything: bool) -> tuple[list[Actor], dict[str, str]]:
        asked.append(everything)
        return list(table), ENTRY

    actors = RayActors(ask, clock.monotonic)
    actors.poll()
    actors.poll()
    assert asked == [True]
    version, first = actors.on("n1", 0)
    assert first is not None
    assert [worker.pid for worker in first] == [1]
    assert actors.on("n1", version) == (version, None)
    assert actors.on("n2", 0) == (version, ())
    clock.advance(LOOK_SECONDS)
    actors.poll()
    assert asked == [True, False], "the dead are asked for once"
    assert actors.on("n1", version) == (version, None), "nothing is new"
    table.append(actor(2, 2.0))
    clock.advance(LOOK_SECONDS)
    actors.poll()
    newer, second = actors.on("n1", version)
    assert newer != version
    assert second is not None
    assert [worker.pid for worker in second] == [1, 2]
    assert RayActors(ask, clock.monotonic).on("n1", version)[1] is not None, "after a restart"


def test_a_store_that_does_not_answer():
    clock = FakeClock()
    calls = []

    def ask(everything: bool) -> tuple[list[Actor], dict[str, str]]:
        calls.append(everything)
        raise RuntimeError("GCS is away")

    actors = RayActors(ask, clock.monotonic)
    actors.poll()
    clock.advance(LOOK_SECONDS)
    actors.poll()
    assert calls == [True], "it is left alone for a while"
    clock.advance(10 * LOOK_SECONDS)
    actors.poll()
    assert calls == [True, True], "the dead are still wanted"


def test_what_a_driver_is_called():
    assert script("") == "job"
    assert script("python3 -W ignore -X dev jobs/fit.py") == "fit"
    assert script("python -c print(1)") == script("python") == "job"
    assert script("./run.sh --lr 3") == "run.sh"
