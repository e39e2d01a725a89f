"""Rollouts of suites, and of both roles: full rows in TRL's order, masked where nothing could be scored."""

import json
from types import SimpleNamespace

import pytest

from codea1_cli.engine.client import ArenaClient
from codea1_cli.engine.run_setup import Schedule
from codea1_cli.engine.trl.rank import TrainingRank
from codea1_cli.errors import RunFailed
from codea1_cli.methods.base import CandidateView, SuiteResults
from codea1_cli.methods.rollouts import CodeRollouts, SelfPlayRollouts, TestRollouts
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

    @property
    def generation_config(self):
        return self

    max_new_tokens = 0

    def __init__(self):
        self.prompts, self.longest = [], []

    def _generate_single_turn(self, prompt_ids, images, fields, n):
        self.longest.append(self.generation_config.max_new_tokens)
        self.prompts += ["".join(map(chr, ids)) for ids in prompt_ids]
        return [[ord("a") + row % n] for row in range(len(prompt_ids))], None


class Arena:
    """Answers as the arena would; remembers what was posted."""

    def __init__(self, candidates, results):
        self.candidates, self.results = candidates, results
        self.texts, self.suites, self.skipped, self.calls, self.instead = {}, {}, [], [], {}

    def __getattr__(self, name):
        handler = getattr(type(self), f"on_{name}", lambda *_: None)

        def remote(*arguments):
            self.calls.append(name)
            return handler(self, *arguments)

        return SimpleNamespace(remote=remote)

    def on_substitutes(self, step):
        return self.instead

    def on_next_candidates(self, step, ids):
        return {pid: self.candidates[pid] for pid in ids}

    def on_post_suites(self, step, groups):
        self.suites.update({(pid, index): texts for pid, index, texts in groups})

    def on_skip_suites(self, step, keys):
        self.skipped += keys

    def on_finish_suites(self, step, ids):
        return {pid: self.results[pid] for pid in ids}

    def on_post_candidates(self, step, texts):
        self.texts.update(texts)

    def on_finish_candidates(self, step, ids):
        return {pid: [float(len(text)) for text in self.texts[pid]] for pid in ids}


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    monkeypatch.setattr("ray.get", lambda value: value)


def problem(name):
    return Problem(id=name, question=f"Q{name}", declaration="def f():", entry_point="f", reference="hidden")


def side(kind, arena, *overrides, spare="", steps=1):
    overrides = (*overrides, f"train.spare_problems={len(spare)}")
    recipe = load_recipe(
        "tiny", ["game.n_code=2", f"game.n_test={N}", "game.update_n=1", "train.problems_per_step=2", *overrides]
    )
    role = "test" if kind is TestRollouts else "code"
    spec = SimpleNamespace(policy=role, rank=0, ranks=1, label=f"{role}[0]")
    schedule = Schedule((("p", "q", *spare),) * steps, steps)
    rank = TrainingRank(spec, recipe, ArenaClient(arena), {pid: problem(pid) for pid in "pqrst"}, schedule, steps)
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
    assert rows["row_reward"] == [0.3, 0.9, 0.7, None]
    assert rows["env_mask"] == [[1], [1], [1], [0]], "an unscored suite is masked"
    shown = ["".join(map(chr, ids)) for ids in rows["prompt_ids"]]
    assert ["P1" in text for text in shown] == [True, True, False, False]
    assert ["Q1" in text for text in shown] == [False, False, True, True]
    assert made.reward(None, None, row_reward=rows["row_reward"]) == rows["row_reward"]
    assert set(arena.suites) == {("p", 0), ("p", 1), ("q", 0), ("q", 1)}
    assert arena.suites["p", 0] == ["a", "b"]


@pytest.mark.parametrize("early", [True, False])
def test_where_prompts_may_join_a_problem_waits_for_its_own_candidates_alone(monkeypatch, early):
    """`early`: the second problem is loaded while suites against the first are sampled; else when they all are."""
    arena = Arena(
        {pid: [CandidateView(f"{pid.upper()}0", True), CandidateView("x" * 500, True)] for pid in "pq"},
        {pid: SuiteResults([[0.1, 0.2], []], [0]) for pid in "pq"},
    )
    monkeypatch.setattr(Arena, "on_next_candidates", lambda self, step, ids: {ids[0]: self.candidates[ids[0]]})

    def sample(role, prompts, n, on_chunk, more):
        on_chunk(list(range(len(prompts))), [[[ord("a")]] * n for _ in prompts])
        rounds.append([len(prompts), len(new := more())])
        assert more() == [], "nobody is asked twice for what has come"
        on_chunk([len(prompts) + i for i in range(len(new))], [[[ord("b")]] * n for _ in new])
        return [[[ord("a")]] * n for _ in prompts] + [[[ord("b")]] * n for _ in new], None

    monkeypatch.setattr("ray.wait", lambda answers, timeout: (answers if early else [], []))
    rounds = []
    made = side(TestRollouts, arena, "test.max_prompt_tokens=200")
    made.rank.trainer.use_vllm, made.rank.sample = True, sample
    made.rank.trainer._last_loaded_step = 0
    made.rank.log_probs = lambda asked, found: [[[-1.0]] * N for _ in asked]
    rows = rollout(made)
    assert rounds == ([[1, 1]] if early else [[1, 0], [1, 0]])
    assert rows["row_reward"] == [0.1, 0.2, 0.1, 0.2]
    assert arena.suites == {("p", 0): ["a", "a"], ("q", 0): ["b", "b"] if early else ["a", "a"]}
    assert arena.skipped == [("p", 1), ("q", 1)]
    shown = ["".join(map(chr, ids)) for ids in rows["prompt_ids"]]
    assert [[name in text for name in ("P0", "Q0")] for text in shown] == [[True, False]] * 2 + [[False, True]] * 2
    assert arena.calls.count("next_candidates") == 2


def test_where_none_may_join_prompts_stand_in_the_schedules_order_whichever_problem_is_loaded_first(monkeypatch):
    """A run on a CPU is repeatable to the bit."""
    views = {pid: [CandidateView(f"{pid.upper()}0", True), CandidateView(f"{pid.upper()}1", True)] for pid in "pq"}
    results = {pid: SuiteResults([[0.0, 1.0], [0.0, 1.0]], [0]) for pid in "pq"}
    asked = {}
    for first in (0, -1):
        monkeypatch.setattr(
            Arena, "on_next_candidates", lambda self, step, ids, first=first: {ids[first]: self.candidates[ids[first]]}
        )
        made = side(TestRollouts, arena := Arena(views, results))
        rollout(made)
        assert arena.calls.count("next_candidates") == 2
        asked[first] = made.rank.trainer.prompts
    assert asked[0] == asked[-1]


def test_a_problem_without_a_candidate_to_attack_gives_full_masked_rows():
    arena = Arena(
        {"p": [CandidateView("", False)] * 2, "q": [CandidateView("Q0", True), CandidateView("", False)]},
        {"p": SuiteResults([[], []], []), "q": SuiteResults([[None, None], []], [])},
    )
    made = side(TestRollouts, arena)
    rows = rollout(made)
    assert rows["row_reward"] == [None] * 4
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


def test_candidates_are_posted_as_they_come_and_return_with_their_rewards():
    arena = Arena({}, {})
    made = side(CodeRollouts, arena)
    made.rank.arena.finish_candidates = lambda step, ids: {"p": [1.0, 2.0], "q": [None, 4.0]}
    rows = rollout(made)
    assert rows["row_reward"] == [1.0, 2.0, None, 4.0]
    assert rows["env_mask"] == [[1], [1], [0], [1]], "an unscored candidate is masked"
    assert ["Qq" in "".join(map(chr, ids)) for ids in rows["prompt_ids"]] == [False, False, True, True]
    assert arena.texts == {"p": ["a", "b"], "q": ["a", "b"]}
    assert made.rank.sampled_tokens == {"code": 4}


SPARE = {"p": [0.5, 0.5], "q": [0.1, 0.2], "r": [None, 1.0], "s": [1.0, 0.0], "t": [0.0, 0.3]}


@pytest.mark.parametrize(
    ("flat", "chosen"),
    [("", "qs"), ("q", "st"), ("qs", "pt"), ("qst", "pq"), ("pqrst", "pq")],
)
def test_of_spare_problems_those_with_a_signal_take_the_places_of_others(flat, chosen):
    """In order; never more than are due, and where too few have a signal the first without one stay."""
    rewards = {pid: [0.5, 0.5] if pid in flat else row for pid, row in SPARE.items()}
    made = side(CodeRollouts, Arena({}, {}), spare="rst")
    made.rank.arena.finish_candidates = lambda step, ids: {pid: rewards[pid] for pid in ids}
    rows = rollout(made)
    assert rows["row_reward"] == [reward for pid in chosen for reward in rewards[pid]]
    taught = sum(len({*rewards[pid]} - {None}) > 1 for pid in chosen)
    assert made.rank.figures["code"] == {"signal_share": taught / 2}


def test_each_rank_has_neighbours_of_a_step_and_its_share_of_the_spare_problems_less_those_that_have_left():
    arena = Arena({}, {})
    arena.instead = {"u": "v", "q": "w"}
    made = side(CodeRollouts, arena, spare="rstu")
    made.rank.spec.rank, made.rank.spec.ranks = 1, 2
    assert made.rank.scheduled(1) == ["q"]
    assert made.rank.problem_ids(1) == ["w", "s", "v"]
    assert made.rank.problem_ids(2) == [], "the run has ended"


def test_rows_of_other_problems_than_the_schedule_s_are_an_error():
    with pytest.raises(RunFailed, match=r"code\[0\] step 1: TRL's rows are not those of the schedule"):
        rollout(side(CodeRollouts, Arena({}, {})), ("q", "p"))


def stale(arena, steps=3):
    made = side(CodeRollouts, arena, "train.staleness=1", steps=steps)
    asked = []
    made.rank.log_probs = lambda prompts, found: [[[-0.5] for _ in group] for group in found]
    made.rank.arena.post_candidates = lambda step, texts: asked.append(("post", step, sorted(texts)))
    made.rank.arena.finish_candidates = lambda step, ids: (
        asked.append(("finish", step)) or {pid: [float(step), 0.0] for pid in ids}
    )
    return made, asked


def test_candidates_of_the_next_step_are_posted_before_anybody_waits_for_this_one_s_rewards():
    made, asked = stale(Arena({}, {}))
    for step in (1, 2, 3):
        made.rank.trainer.state = SimpleNamespace(global_step=step - 1)
        rows = rollout(made)
        assert rows["row_reward"] == [float(step), 0.0] * 2
        assert rows["logprobs"] == [[-0.5]] * 4, "those of the policy that sampled"
    both = ["p", "q"]
    assert asked == [
        ("post", 1, both), ("post", 2, both), ("finish", 1), ("post", 3, both), ("finish", 2), ("finish", 3),
    ]  # fmt: skip
    assert made.state() is None, "nothing is sampled beyond the last step"


def test_a_checkpoint_keeps_what_was_sampled_ahead_and_a_resumed_run_posts_it_again():
    made, _ = stale(Arena({}, {}))
    rollout(made)
    state = json.loads(json.dumps(made.state()))
    made.rank.trainer.state = SimpleNamespace(global_step=1)
    whole = rollout(made)

    again, asked = stale(Arena({}, {}))
    again.restore(state)
    again.rank.trainer.state = SimpleNamespace(global_step=1)
    assert again.state() == state
    assert rollout(again) == whole
    assert asked[0] == ("post", 2, ["p", "q"])
    assert len(again.rank.trainer.prompts) == 4, "step 3's alone were sampled"


def test_suites_against_spare_problems_fill_groups_without_a_signal():
    arena = Arena(
        {pid: [CandidateView(f"{pid}0", True), CandidateView("", False)] for pid in "pqr"},
        {
            "p": SuiteResults([[0.0, 0.0], []], [0]),
            "q": SuiteResults([[0.1, 0.2], []], [0]),
            "r": SuiteResults([[0.3, 0.4], []], [0]),
        },
    )
    made = side(TestRollouts, arena, spare="r")
    rows = rollout(made)
    assert rows["row_reward"] == [0.1, 0.2, 0.3, 0.4]
    assert made.rank.figures["test"] == {"signal_share": 1.0}


def test_self_play_returns_each_problems_candidates_and_then_its_selected_suites():
    """Both are sampled before anybody waits for a reward; an unscored candidate is masked as an unscored suite is."""
    arena = Arena(
        {pid: [CandidateView(f"{pid}0", True), CandidateView(f"{pid}1", True)] for pid in "pq"},
        {"p": SuiteResults([[0.1, 0.2], [0.3, 0.9]], [1]), "q": SuiteResults([[None, None], [0.5, None]], [])},
    )
    arena.on_finish = {"p": [1.0, None], "q": [0.25, 0.75]}
    made = side(SelfPlayRollouts, arena, "method=self-play", "game.n_test=3", "code.max_completion_tokens=7")
    made.rank.arena.finish_candidates = lambda step, ids: {pid: arena.on_finish[pid] for pid in ids}
    for pid, result in list(arena.results.items()):
        arena.results[pid] = SuiteResults([[*row, 0.6] for row in result.rewards], result.selected)
    prompts = [[{"role": "user", "content": pid}] for pid in "pq" for _ in range(2 + 3)]
    rows = made.rollout(prompts, made.rank.trainer)
    assert rows["row_reward"] == [1.0, None, 0.3, 0.9, 0.6, 0.25, 0.75, None, None, None]
    assert [sum(mask) for mask in rows["env_mask"]] == [1, 0, 1, 1, 1, 1, 1, 0, 0, 0]
    shown = ["".join(map(chr, ids)) for ids in rows["prompt_ids"]]
    assert ["Write this function" in text for text in shown] == [True, True, *[False] * 3, True, True, *[False] * 3]
    assert "p1" in shown[2]
    assert arena.texts == {"p": ["a", "b"], "q": ["a", "b"]}
    assert set(arena.suites) == {("p", 0), ("p", 1), ("q", 0), ("q", 1)}
    assert made.rank.sampled_tokens == {"code": 4, "test": 12}
    order = [call for call in arena.calls if call not in ("heartbeat", "substitutes")]
    assert order == ["post_candidates", "next_candidates", "post_suites", "finish_suites"]
    assert made.rank.trainer.longest == [7, load_recipe("tiny").test.max_completion_tokens]
