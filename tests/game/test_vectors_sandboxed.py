"""The same suites through the real sandbox and judge: what is compared elsewhere must not change the game."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from codea1_cli.extract import parse_suite
from codea1_cli.game.judged_tests import JudgedCandidate, calls_for_reference, judged_book, judged_suite, read_book_test
from codea1_cli.game.rules import Game
from codea1_cli.game.scoring import score_problem
from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    sandbox = LocalSandbox(workers=1)
    yield Judge(sandbox, limits=Limits(time_s=10.0), tolerance=0.0)
    sandbox.close()


def test_every_suite_earns_what_the_published_code_gave_it(shared: Path, judge: Judge) -> None:
    rules = Game(mode="paper")
    for problem in json.loads((shared / "cases/pipeline.json").read_text()):
        entry = problem["entry_point"]
        book = [test for source in problem["book"] if (test := read_book_test(source))]
        candidates = []
        for case in problem["candidates"]:
            suites = [parse_suite(suite["text"], entry, cap=rules.cap, mode=rules.mode) for suite in case["suites"]]
            calls = calls_for_reference(rules, suites, book)
            expected = judge.expected(problem["reference"], entry, calls)
            result = judge.check(case["code"], entry, calls, expected)
            judged = tuple(
                judged_suite(rules, told["text"], suite, expected, result.verdicts, judge.equal)
                for told, suite in zip(case["suites"], suites, strict=True)
            )
            on_book = judged_book(book, expected, result.verdicts)
            candidates.append(JudgedCandidate(case["code"], result.loaded, on_book, judged))
        outcome = score_problem(rules, tuple((test, 1) for test in problem["book"]), candidates, problem["id"])
        told = [suite["test_reward"] for case in problem["candidates"] for suite in case["suites"]]
        earned = [reward for rewards in outcome.suite_rewards for reward in rewards]
        assert earned == pytest.approx(told, abs=1e-9)
        assert outcome.code_rewards == pytest.approx([case["reward"] for case in problem["candidates"]], abs=1e-9)
        failed = [
            t for case in problem["candidates"] if case["loads"] for s in case["suites"] for t in s["failed_tests"]
        ]
        assert [event.test for event in outcome.events if event.change == 1] == failed
