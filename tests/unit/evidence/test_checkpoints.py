"""Checkpoints in listings, layout by layout."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.checkpoints import CheckpointFacts, FolderEntry, read_listing


def listing(*paths: str, size: int = 1000, **more: object) -> CheckpointFacts:
    entries = [FolderEntry(path=p, size=size, modified=100.0 * n) for n, p in enumerate(paths)]
    return read_listing(entries, **more)  # type: ignore[arg-type]


def steps(facts: CheckpointFacts, complete: bool = True) -> list[int]:
    return [c.step for c in facts.checkpoints if c.complete is complete]


@pytest.mark.parametrize(
    ("path", "step", "layout"),
    [
        ("step_1000/model.pt", 1000, "step"),
        ("step-1000/model.pt", 1000, "step"),
        ("global_step500/mp_rank_00_model_states.pt", 500, "deepspeed"),
        ("run/global_step_40/actor/model.pt", 40, "deepspeed"),
        ("checkpoint-500/model.safetensors", 500, "transformers"),
        ("iter_0000100/mp_rank_00/model_optim_rng.pt", 100, "megatron"),
        ("iter_100/model.pt", 100, "megatron"),
        ("checkpoint_00012/model.pt", 12, "ray-train"),
        ("step_10/__0_0.distcp", 10, "dcp"),
        ("checkpoints/200/_CHECKPOINT_METADATA", 200, "orbax"),
        ("200/items/manifest.ocdbt", 200, "orbax"),
        ("checkpoint_step_00010000.pt", 10000, "file"),
        ("epoch=3-step=1000.ckpt", 1000, "file"),
        ("ckpt_250.pt", 250, "file"),
    ],
)
def test_layouts(path: str, step: int, layout: str) -> None:
    found = listing(path).checkpoints
    assert [(c.step, c.layout) for c in found] == [(step, layout)]


@pytest.mark.parametrize(
    "path", ["model.pt", "README.md", "logs/rank-3.log", "config_8.json", "x/y/z.bin"]
)
def test_what_is_no_checkpoint(path: str) -> None:
    assert listing(path).checkpoints == ()


@pytest.mark.parametrize(
    "half",
    [
        ("300.orbax-checkpoint-tmp-123/items/manifest.ocdbt",),
        ("300.orbax-checkpoint-tmp/items/d/x",),
        ("tmp-checkpoint-300/model.safetensors",),
        ("step_300/__0_0.distcp", "step_300/__1_0.distcp"),
        ("step_300/model.pt.tmp",),
        ("step_300.tmp/model.pt",),
        ("checkpoint-300/optimizer.pt", "checkpoint-300/model.safetensors"),
        ("ckpt_300.pt.tmp",),
        ("300/items/manifest.ocdbt",),
    ],
)
def test_half_written(half: tuple[str, ...]) -> None:
    facts = listing(*half)
    assert steps(facts) == []
    assert steps(facts, complete=False) == [300]
    assert any("half-written" in problem for problem in facts.problems)


def test_what_is_written_last_makes_it_whole() -> None:
    assert steps(listing("step_10/__0_0.distcp", "step_10/.metadata")) == [10]
    assert steps(listing("checkpoint-5/optimizer.pt", "checkpoint-5/trainer_state.json")) == [5]
    assert steps(listing("checkpoint-5/model.safetensors")) == [5]
    assert steps(listing("7/_CHECKPOINT_METADATA", "7/default/manifest.ocdbt")) == [7]


def test_weights_alone_beside_one_with_its_trainers_state_are_half_written() -> None:
    whole = ("checkpoint-5/model.safetensors", "checkpoint-5/trainer_state.json")
    assert steps(listing(*whole, "checkpoint-10/model.safetensors")) == [5]
    assert steps(listing(*whole, "else/checkpoint-10/model.safetensors")) == [5, 10]


def test_a_rank_of_dcp_may_have_nothing_to_save() -> None:
    files = {"__0_0.distcp": 1000, "__1_0.distcp": 0, ".metadata": 10}
    entries = [FolderEntry(path=f"step_10/{name}", size=size) for name, size in files.items()]
    assert steps(read_listing(entries)) == [10]
    assert steps(read_listing([*entries[1:]])) == []


def test_a_much_smaller_one_is_half_written() -> None:
    entries = [FolderEntry(path=f"step_{n}/m.pt", size=1000, modified=n) for n in (100, 200, 300)]
    facts = read_listing([*entries, FolderEntry(path="step_400/m.pt", size=300, modified=400)])
    assert steps(facts) == [100, 200, 300]
    assert steps(facts, complete=False) == [400]
    assert facts.latest_complete is not None
    assert facts.latest_complete.step == 300


def test_interval_age_and_size() -> None:
    entries = [
        FolderEntry(path=f"step_{n}/m.pt", size=10, modified=n * 2.0) for n in (500, 1000, 1500)
    ]
    facts = read_listing(entries, now=3600.0)
    assert (facts.interval_steps, facts.interval_seconds) == (500, 1000.0)
    assert (facts.age_seconds, facts.total_bytes) == (600.0, 30)


def test_latest_as_a_link_and_as_a_file() -> None:
    paths = ("step_100/m.pt", "step_200/m.pt")
    assert listing(*paths, links={"latest": "step_100"}).latest_step == 100
    assert listing(*paths, texts={"latest": "step_200\n"}).latest_step == 200
    tracker = {"latest_checkpointed_iteration.txt": "100"}
    assert listing("iter_0000100/m.pt", texts=tracker).latest_step == 100
    assert listing(*paths).latest_step == 200


def test_latest_that_points_to_nothing_good() -> None:
    facts = listing("step_100/m.pt", "step_200/m.pt.tmp", links={"latest": "step_200"})
    assert any("half-written: take an earlier one" in problem for problem in facts.problems)
    facts = listing("step_100/m.pt", links={"latest": "step_900"})
    assert any("is not there" in problem for problem in facts.problems)


def test_tiers() -> None:
    found = listing("dev/shm/step_1/m.pt", "nvme/step_2/m.pt", "s3/step_3/m.pt", "step_4/m.pt")
    assert [c.tier for c in found.checkpoints] == ["memory", "local", "remote", ""]


def test_nothing() -> None:
    assert read_listing([]) == CheckpointFacts()


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("epoch=0-step=1000.ckpt/checkpoint/mp_rank_00_model_states.pt", 1000),
        ("gpt--val_loss=5.1-step=1000-consumed_samples=8000.0/weights/common.pt", 1000),
        ("ep0-ba2000-rank0.pt", 2000),
        ("ep0-ba2000/__0_0.distcp", 2000),
        ("checkpoint_3_1500.pt", 1500),
    ],
)
def test_names_made_of_metrics_and_epochs(path: str, step: int) -> None:
    assert [c.step for c in listing(path).checkpoints] == [step]


def test_a_missing_shard_is_seen() -> None:
    told = listing(
        "step_100/model-00001-of-00002.safetensors",
        "step_100/model-00002-of-00002.safetensors",
        "step_200/model-00001-of-00002.safetensors",
    )
    assert told.latest_complete is not None
    assert told.latest_complete.step == 100
    assert "1 of the 2 shards" in told.problems[0]


def test_an_unfinished_mark_is_seen() -> None:
    folder = "model--step=1000-consumed_samples=8.0"
    told = listing(f"{folder}/weights/a.pt", f"{folder}/{folder}-unfinished")
    assert told.latest_complete is None


@pytest.mark.parametrize(
    ("folder", "tracker", "text"),
    [
        ("iter_0000{}", "latest_checkpointed_iteration.txt", "100"),
        ("global_step{}", "latest", "global_step100"),
    ],
)
def test_what_the_tracker_does_not_name_yet_is_half_written(
    folder: str, tracker: str, text: str
) -> None:
    paths = (f"{folder.format(100)}/a.pt", f"{folder.format(200)}/a.pt", tracker)
    told = listing(*paths, texts={tracker: text})
    assert told.latest_complete is not None
    assert told.latest_complete.step == 100
    assert "still names step 100" in told.problems[0]
