"""The arena's own bookkeeping, without Ray and without a sandbox."""

import asyncio

import pyarrow.parquet as pq
import pytest

from codea1_cli.engine import arena as module
from codea1_cli.engine import step_state
from codea1_cli.engine.arena import Arena
from codea1_cli.engine.client import Decision
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.files import read_json
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.files import load_recipe
from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import measured

HELD = Problem(id="h", question="q", declaration="def h():", entry_point="h", reference="r", tests=["assert h() == 1"])


class Judge:
    workers = 1

    def __init__(self):
        self.canaries = []

    def canary(self):
        if self.canaries and self.canaries.pop(0):
            raise EnvironmentFault("the sandbox cannot judge", "look at it")

    def solve_rate(self, problem, texts):
        raise ZeroDivisionError("a fault of ours")


@pytest.fixture
def arena(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "run_judge", lambda *_, **__: Judge())
    monkeypatch.setattr(step_state, "_CANARY_PAUSES_S", (0.0, 0.0))
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    run.create()
    return Arena(load_recipe("tiny", ["checkpoint.every=3"]), str(run.path), ["code[0]", "test[0]"])


def start(arena, heldout=(), last=6):
    return arena.start(Schedule((), 0), {}, list(heldout), 0, last)


def test_targets_that_are_none_are_known_after_a_resume(arena):
    """A first policy without a loading wrong solution leaves an empty list, which is a choice, not a gap."""
    file = arena.run.path / "evaluation" / "targets.json"
    file.parent.mkdir()
    file.write_text("[]\n")

    async def targets():
        await start(arena, [HELD])
        return await asyncio.wait_for(arena.evaluation_share("heldout-attacking", 0, 1), 5)

    assert asyncio.run(targets()) == []


@pytest.mark.parametrize("broken", ["{}", "null", '[["h"]]', '[["h", 3]]', '["ab"]', "[{}]"])
def test_targets_that_are_no_programs_are_named(arena, broken):
    file = arena.run.path / "evaluation" / "targets.json"
    file.parent.mkdir()
    file.write_text(broken)
    with pytest.raises(UserError, match=r"targets\.json"):
        asyncio.run(start(arena, [HELD]))


def test_targets_of_another_run_are_taken_and_kept(arena, tmp_path):
    """The other run's files are copied: what becomes of it later does not matter."""
    folder = tmp_path / "first" / "evaluation"
    folder.mkdir(parents=True)
    (folder / "targets.json").write_text('[["h", "wrong"], ["gone", "other"]]\n')
    (folder / "near_miss.json").write_text('{"h": ["near"]}\n')
    arena.recipe.eval.targets = str(tmp_path / "first")

    async def shares():
        await start(arena, [HELD])
        return [await arena.evaluation_share(f"heldout-{name}", 0, 1) for name in ("attacking", "near-miss")]

    assert [[item.source for item in share] for share in asyncio.run(shares())] == [["wrong"], ["near"]]
    assert (arena.run.path / "evaluation" / "targets.json").read_text() == (folder / "targets.json").read_text()


def test_a_run_without_checkpoints_saves_none(arena):
    arena.recipe.checkpoint.every = None

    async def end():
        await start(arena)
        return [await arena.step_ended("code[0]", step) for step in (1, 6)]

    assert asyncio.run(end()) == [Decision(save=False, stop=False), Decision(save=False, stop=True)]


def test_near_misses_of_a_run_that_goes_on_are_those_that_it_has(arena):
    file = arena.run.path / "evaluation" / "near_miss.json"
    file.parent.mkdir()
    file.write_text('{"h": ["one", "two"], "gone": ["three"]}\n')

    async def shares():
        await start(arena, [HELD])
        return [await arena.evaluation_share("heldout-near-miss", rank, 2) for rank in (0, 1)]

    assert [[item.source for item in share] for share in asyncio.run(shares())] == [["one"], ["two"]]


def test_an_evaluation_that_fails_is_told_to_the_driver_and_to_who_waits(arena):
    async def fail():
        await start(arena, [HELD])
        await arena.post_evaluation(0, "heldout-solving", 0, {"h": ["x"]}, 0)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(arena.evaluation_share("heldout-attacking", 0, 1), 5)
        with pytest.raises(ZeroDivisionError):
            await arena.health()

    asyncio.run(fail())


def test_what_was_sampled_is_kept_beside_its_rows(arena):
    async def evaluate():
        await start(arena, [HELD])
        solved = [{"problem_id": "h", "passed": [True, False], "unscored": 0, "wrong": ["x"]}]
        arena.heldout.solving.score = lambda texts: ({"pass@1": 0.5}, solved)
        attacked = [{"problem_id": "h", "exposed": True}]
        for chosen in (arena.heldout.attacking, arena.heldout.near_misses):
            chosen.targets = [("h", "wrong")]
            chosen.score = lambda texts: ({}, attacked)
        await arena.post_evaluation(0, "heldout-solving", 0, {"h": ["right", "\ud800"]}, 0)
        await arena.post_evaluation(0, "heldout-attacking", 0, {"0": ["a suite"]}, 0)
        await arena.post_evaluation(0, "heldout-near-miss", 0, {"0": ["another"]}, 0)
        await arena.heldout.drain()

    asyncio.run(evaluate())
    folder = arena.run.path / "evaluation"
    kept = {
        part: read_json(folder / f"step-000000-{part}-replies.json.gz", list) for part in ("code", "test", "near-miss")
    }
    assert kept["code"] == [{"problem_id": "h", "replies": ["right", "\ud800"]}]
    assert kept["near-miss"] == [{"problem_id": "h", "program": "wrong", "replies": ["another"]}]
    assert [row["problem_id"] for row in read_json(folder / "step-000000-test.json", list)] == ["h"]
    assert set(measured(arena.run)) == {"heldout"}


@pytest.mark.parametrize(
    ("canaries", "step", "decision"),
    [
        ([], 1, Decision(save=False, stop=False)),
        ([], 3, Decision(save=True, stop=False)),
        ([True, True], 1, Decision(save=False, stop=False)),  # a moment of trouble
        ([True, True, True], 1, Decision(save=True, stop=True)),
        ([True, True, True], 6, Decision(save=True, stop=True)),  # the end: nothing is left to judge
    ],
)
def test_what_the_end_of_a_step_decides(arena, canaries, step, decision):
    async def end():
        await start(arena)
        arena.judge.canaries = list(canaries)
        return await arena.step_ended("code[0]", step), await arena.step_ended("test[0]", step)

    assert asyncio.run(end()) == (decision, decision)
    assert (arena.outage is not None) == (len(canaries) == 3 and step < 6)


def test_each_candidate_of_a_shared_group_keeps_its_own_reply(tmp_path, monkeypatch):
    """Identical programs share suites and verdicts; the replies that they came in differ."""
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    run.create()
    block = "```python\ndef h():\n    return 2\n```"
    replies = [block, f"Here it is:\n{block}", "no program"]
    problem = HELD.model_copy(update={"reference": "def h():\n    return 1\n"})
    settings = ["judge.workers=1", "game.n_code=3", "game.n_test=2", "game.update_n=1", "game.share_identical=true"]

    async def play():
        arena = Arena(load_recipe("tiny", settings), str(run.path), ["code[0]", "test[0]"])
        await arena.start(Schedule((("h",),), 1), {"h": problem}, [], 0, 1)
        await arena.post_candidates(1, {"h": replies})
        views = (await arena.next_candidates(1, ["h"]))["h"]
        await arena.post_suites(1, [("h", 0, ["```python\nassert h() == 1\n```"] * 2)])
        await arena.finish_suites(1, ["h"])
        rewards = await arena.finish_candidates(1, ["h"])
        await arena.close()
        return [view.attack for view in views], rewards["h"]

    attacked, rewards = asyncio.run(play())
    assert attacked == [True, False, False]
    assert rewards == [0.0, 0.0, 0.0]
    table = pq.read_table(run.rollout_file(1)).to_pylist()
    assert [row["completion"] for row in table] == replies
    assert [len(row["suites"]) for row in table] == [2, 2, 0]
