"""The test side's rollout: full rows in TRL's order, masked where nothing could be scored."""

from types import SimpleNamespace

import pytest

from codea1_cli.engine.client import ArenaClient
from codea1_cli.engine.trl.rank import TrainingRank
from codea1_cli.errors import RunFailed
from codea1_cli.methods.base import CandidateView, SuiteResults
from codea1_cli.methods.rollouts import CodeRollouts, TestRollouts
from codea1_cli.problems.problem import Problem
from codea1_cli.recipe.files import load_recipe

EOS = 1
N = 2


class Tokenizer:
    """One token a character, so that prompts can be read back."""

    eos_token_id = EOS

    chat_template = "takes every role"

    def apply_chat_template(self, messages, tokenize=True, **_):
        if not tokenize:
            return "".join(message["content"] for message in messages)
        return [ord(c) for c in messages[-1]["content"]]

    def batch_decode(self, groups, **_):
        return ["".join(map(chr, ids)) for ids in groups]


class Trainer:
    use_vllm = False
    processing_class = Tokenizer()
    state = SimpleNamespace(global_step=0)

    def __init__(self):
        self.prompts = []

    def _generate_single_turn(self, prompt_ids, images, fields, n):
        self.prompts += ["".join(map(chr, ids)) for ids in prompt_ids]
        return [[ord("a") + row % n] for row in range(len(prompt_ids))], None


class Arena:
    """Answers as the arena would; remembers what was posted."""

    def __init__(self, candidates, results):
        self.candidates, self.results = candidates, results
        self.suites, self.skipped = {}, []

    def __getattr__(self, name):
        handler = getattr(type(self), f"on_{name}", lambda *_: None)
        return SimpleNamespace(remote=lambda *arguments: handler(self, *arguments))

    def on_get_candidates(self, step, ids):
        return {pid: self.candidates[pid] for pid in ids}

    def on_post_suites(self, step, groups):
        self.suites.update({(pid, index): texts for pid, index, texts in groups})

    def on_skip_suites(self, step, keys):
        self.skipped += keys

    def on_finish_suites(self, step, ids):
        return {pid: self.results[pid] for pid in ids}

    def on_post_candidates(self, step, texts):
        return {pid: [float(len(text)) for text in group] for pid, group in texts.items()}


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    monkeypatch.setattr("ray.get", lambda value: value)


def problem(name):
    return Problem(id=name, question=f"Q{name}", declaration="def f():", entry_point="f", reference="hidden")


def side(kind, arena, *overrides):
    recipe = load_recipe(
        "tiny", ["game.n_code=2", f"game.n_test={N}", "game.update_n=1", "train.problems_per_step=2", *overrides]
    )
    role = "code" if kind is CodeRollouts else "test"
    spec = SimpleNamespace(role=role, rank=0, ranks=1, label=f"{role}[0]")
    rank = TrainingRank(spec, recipe, ArenaClient(arena), {"p": problem("p"), "q": problem("q")}, 1)
    rank.trainer = Trainer()
    return kind(rank)


def rollout(made, ids=("p", "q")):
    prompts = [[{"role": "user", "content": pid}] for pid in ids for _ in range(N)]
    return made.rollout(prompts, made.rank.trainer)


def test_selected_groups_come_back_in_order_with_their_rewards():
    arena = Arena(
        {
            "p": [CandidateView("P0", True), CandidateView("P1", True)],
            "q": [CandidateView("Q0", True), CandidateView("Q1", True)],
        },
        {"p": SuiteResults([[0.1, 0.2], [0.3, 0.9]], [1]), "q": SuiteResults([[0.5, 0.6], [0.7, None]], [1])},
    )
    made = side(TestRollouts, arena)
    rows = rollout(made)
    assert rows["suite_reward"] == [0.3, 0.9, 0.7, None]
    assert rows["env_mask"] == [[1], [1], [1], [0]], "an unscored suite is masked"
    shown = ["".join(map(chr, ids)) for ids in rows["prompt_ids"]]
    assert ["P1" in text for text in shown] == [True, True, False, False]
    assert ["Q1" in text for text in shown] == [False, False, True, True]
    assert made.reward(None, None, suite_reward=rows["suite_reward"]) == rows["suite_reward"]
    assert set(arena.suites) == {("p", 0), ("p", 1), ("q", 0), ("q", 1)}
    assert arena.suites["p", 0] == ["a", "b"]


def test_a_problem_without_a_candidate_to_attack_gives_full_masked_rows():
    arena = Arena(
        {"p": [CandidateView("", False)] * 2, "q": [CandidateView("Q0", True), CandidateView("", False)]},
        {"p": SuiteResults([[], []], []), "q": SuiteResults([[None, None], []], [])},
    )
    made = side(TestRollouts, arena)
    rows = rollout(made)
    assert rows["suite_reward"] == [None] * 4
    assert all(sum(mask) == 0 for mask in rows["env_mask"])
    assert all(len(ids) == len(mask) > 0 for ids, mask in zip(rows["completion_ids"], rows["env_mask"], strict=True))
    assert len(rows["prompt_ids"]) == 4


def test_white_box_off_hides_the_candidate():
    views = {pid: [CandidateView("SECRET", True), CandidateView("SECRET2", True)] for pid in "pq"}
    results = {pid: SuiteResults([[0.0, 1.0], [0.0, 1.0]], [0]) for pid in "pq"}
    for switch, expected in (("true", True), ("false", False)):
        made = side(TestRollouts, Arena(views, results), f"game.white_box={switch}")
        rollout(made)
        assert any("SECRET" in prompt for prompt in made.rank.trainer.prompts) is expected


def test_a_prompt_too_long_for_the_test_llm_is_skipped_and_told():
    views = {"p": [CandidateView("x" * 500, True), CandidateView("y", True)], "q": [CandidateView("z", True)] * 2}
    results = {"p": SuiteResults([[], [0.0, 1.0]], [1]), "q": SuiteResults([[0.0, 1.0], [0.0, 1.0]], [0])}
    arena = Arena(views, results)
    rollout(side(TestRollouts, arena, "test.max_prompt_tokens=200"))
    assert arena.skipped == [("p", 0)]
    assert ("p", 0) not in arena.suites


def test_too_few_rows_never_reach_trl():
    arena = Arena(
        {pid: [CandidateView("a", True), CandidateView("b", True)] for pid in "pq"},
        {"p": SuiteResults([[0.0, 1.0], [0.0, 1.0]], [0, 1]), "q": SuiteResults([[0.0, 1.0], [0.0, 1.0]], [0])},
    )
    with pytest.raises(RunFailed, match="rollout of 6 rows where 4 are due"):
        rollout(side(TestRollouts, arena))


def test_code_rewards_find_their_rows():
    made = side(CodeRollouts, Arena({}, {}))
    completions = [[{"role": "assistant", "content": "x" * length}] for length in (1, 2, 3, 4)]
    ids = [[7] * length for length in (1, 2, 3, 4)]
    assert made.reward(None, completions, completion_ids=ids, problem_id=["p", "p", "q", "q"]) == [1.0, 2.0, 3.0, 4.0]
    assert made.rank.sampled_tokens == 10
