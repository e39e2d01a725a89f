"""Suites that try to be more than tests, against what an ideal system keeps of them."""

import json
from pathlib import Path

import pytest

from codea1_cli.game.rules import Game
from codea1_cli.judging.compare import same
from codea1_cli.sandbox.verdicts import Verdict
from tests.game.play import judge


@pytest.mark.shared
def test_each_keeps_what_it_may(shared: Path) -> None:
    folder = shared / "cases/hostile"

    def text(name: str) -> str:
        return (folder / name).read_bytes().decode("utf-8", "surrogateescape")

    cases = [case for case in json.loads((folder / "cases.json").read_text()) if case["side"] == "tests"]
    assert len(cases) > 5
    for case in cases:
        judged = judge(
            Game(),
            text(case["reference"]),
            case["entry_point"],
            text(case["candidate"]),
            [text(case["file"])],
            equal=same,
        )
        valid = [test for test in judged.suites[0].tests if test.valid]
        correct = sum(test.stated_correctly is True for test in valid)
        expected = case["expected"]
        assert len(valid) in [expected["valid_tests"], *expected.get("accept_valid", [])], case["id"]
        assert correct in [expected["correct"], *expected.get("accept_correct", [])], case["id"]
        if len(valid) == expected["valid_tests"]:
            assert sum(test.verdict is Verdict.PASSED for test in valid) == expected["passes"], case["id"]
