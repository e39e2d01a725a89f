"""Paper mode against what the published code answered to the same counts, books and suites."""

import json
from pathlib import Path

import pytest

from codea1_cli.game.mistake_book import Book
from codea1_cli.game.rewards import SuiteCounts, code_reward, suite_reward
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import population_std, score_problem
from codea1_cli.sandbox.verdicts import Verdict
from tests.game.play import judge

pytestmark = pytest.mark.shared
K = 8
EXACT = 1e-9


def test_every_reward_case(shared: Path) -> None:
    cases = json.loads((shared / "cases/rewards.json").read_text())
    assert len(cases) == 223
    for case in cases:
        fails = case["candidate_fails_valid_test"]
        counts = SuiteCounts(
            valid=case["valid_tests"],
            invalid=case["invalid_tests"],
            early_fails=sum(fails[:K]),
            passes=fails.count(False),
            book_total=case["book_total"],
            book_passes=case["book_passed"],
        )
        loads = case["candidate_loads"]
        found = suite_reward(
            Game(tests_per_suite=K, alpha=case["alpha"]), counts, loads=loads, penalty=case["nonprintable_ratio"]
        )
        assert found.reward == pytest.approx(case["test_reward"], abs=EXACT), case
        assert found.validity == pytest.approx(case["validity"], abs=EXACT), case
        assert found.adversarial == pytest.approx(case["adversarial"], abs=EXACT), case
        assert (code_reward(Game(), counts) or 0.0) == pytest.approx(case["code_reward"], abs=EXACT), case


def test_every_book_sequence(shared: Path) -> None:
    sequences = json.loads((shared / "cases/mistake_book.json").read_text())
    assert len(sequences) == 25
    for sequence in sequences:
        book, steps = Book(), []
        for step in sequence:
            assert list(book.replay(8)) == step["replayed"]
            book, events = book.update("p", [step["passed_replayed"]], [step["failed_new"]])
            steps.append(events)
            assert dict(book.entries) == step["counts_after"]
            if events:  # the published book is sorted in place at a visit that changes nothing as well
                assert list(book.entries) == list(step["counts_after"].items())
            assert Book.fold(steps) == book


def pipeline_problems() -> list[int]:
    return list(range(14))


@pytest.mark.parametrize("index", pipeline_problems())
def test_every_suite_of_a_problem(shared: Path, index: int) -> None:
    problems = json.loads((shared / "cases/pipeline.json").read_text())
    assert len(problems) == len(pipeline_problems())
    problem = problems[index]
    rules = Game(mode="paper", tests_per_suite=K, alpha=problem["alpha"])
    candidates = [
        judge(
            rules,
            problem["reference"],
            problem["entry_point"],
            candidate["code"],
            [suite["text"] for suite in candidate["suites"]],
            problem["book"],
        )
        for candidate in problem["candidates"]
    ]
    outcome = score_problem(rules, tuple((test, 1) for test in problem["book"]), candidates, problem["id"])
    for c, (case, judged) in enumerate(zip(problem["candidates"], candidates, strict=True)):
        assert judged.loaded == case["loads"]
        if judged.loaded:
            assert sum(test.verdict is Verdict.PASSED for test in judged.book) == case["book_passed"]
        assert outcome.code_rewards[c] == pytest.approx(case["reward"], abs=EXACT)
        rewards = [reward for reward in outcome.suite_rewards[c] if reward is not None]
        assert population_std(rewards) == pytest.approx(case["suite_reward_std"], abs=EXACT)
        for suite, told, reward in zip(judged.suites, case["suites"], rewards, strict=True):
            valid = [test for test in suite.tests if test.valid]
            wrong = sum(test.stated_correctly is False for test in valid)
            assert len(valid) == told["valid_tests"]
            assert len(suite.tests) - len(valid) + wrong == told["invalid_tests"]
            assert sum(test.verdict is Verdict.PASSED for test in valid) == told["candidate_passes"]
            assert [t.source for t in valid if t.verdict is not Verdict.PASSED] == told["failed_tests"]
            assert reward == pytest.approx(told["test_reward"], abs=EXACT)
    spread = [case["suite_reward_std"] for case in problem["candidates"]]
    assert spread[outcome.selected[0]] == pytest.approx(max(spread), abs=EXACT)
    loading = [judged for judged in candidates if judged.loaded]
    forgiven = {test.source for judged in loading for test in judged.book if test.verdict is Verdict.PASSED}
    gained = [t for case in problem["candidates"] if case["loads"] for s in case["suites"] for t in s["failed_tests"]]
    assert [event.test for event in outcome.events if event.change == 1] == gained
    assert {event.test for event in outcome.events if event.change == -1} == forgiven
    assert Book(tuple((test, 1) for test in problem["book"])).apply(outcome.events).entries == outcome.book_after
