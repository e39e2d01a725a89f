"""A policy on two ranks plays the game that it plays on one: no problem straddles ranks, nothing is lost between them."""

import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from harness import SMALL, Cli

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e-ranks")]

# Sampled by prompt, a reply does not depend on the rank; a step that teaches next to nothing keeps the policies equal.
SAME_REPLIES = (
    "sampling.engine=transformers",
    "sampling.seed_by_prompt=true",
    "optim.learning_rate=1e-12",
    "train.max_steps=2",
    "train.updates_per_step=1",
    "game.update_n=2",
)


def rows(run: Path, step: int) -> list[dict[str, object]]:
    table = pq.read_table(run / "rollouts" / f"step-{step:06d}.parquet").to_pylist()
    return sorted(table, key=repr)


def events(run: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(run / "mistakes.sqlite") as database:
        return sorted(database.execute("SELECT step, problem_id, test, change, candidate FROM events"))


def test_two_ranks_a_side_give_the_rewards_the_book_and_the_selection_of_one(cli: Cli) -> None:
    for ranks in (1, 2):
        done = cli(
            "train", "--recipe", "tiny", "--run", f"ranks-{ranks}", *SMALL, *SAME_REPLIES, f"code.ranks={ranks}",
            f"test.ranks={ranks}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    one, two = cli.path("ranks-1"), cli.path("ranks-2")
    for step in (1, 2):
        assert rows(one, step) == rows(two, step), f"step {step}"
        assert any(row.get("selected") for row in rows(one, step))
    assert events(one)
    assert events(one) == events(two)


def test_two_ranks_resume(cli: Cli) -> None:
    options = (*SMALL, "train.max_steps=2", "train.updates_per_step=1", "checkpoint.every=1", "code.ranks=2")
    first = cli("train", "--recipe", "tiny", "--run", "ranks-again", *options, "--max-steps", "1")
    assert first.returncode == 0, first.stderr
    second = cli("train", "--run", "ranks-again", "--resume")
    assert second.returncode == 0, second.stderr
    assert [line["step"] for line in cli.metrics("ranks-again")] == [1, 2]
