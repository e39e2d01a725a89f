"""Every shared hostile case: alone, and in the middle of a batch of good jobs whose verdicts stay as they were."""

import json
from pathlib import Path
from typing import Any

import pytest

from codea1_cli.judging.judge_rows import JudgeRow, RowJudge
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox

pytestmark = [pytest.mark.shared, pytest.mark.usefixtures("canary")]
LIMITS = Limits(time_s=2.0, load_s=10.0, memory_mb=512, processes=32, patience=1)
WORDS = {"wrong_answer": "failed", "runtime_error": "raised", "crash": "crashed"}
GOOD = JudgeRow("good", "def f(x): return x + 1", "def f(x): return 1 + x", "f", tests=("assert f(1) == 2",) * 1)


def rows_of(shared: Path) -> list[tuple[JudgeRow, dict[str, Any]]]:
    folder = shared / "cases/hostile"
    rows = []
    for case in json.loads((folder / "cases.json").read_text()):
        text = (folder / case["file"]).read_bytes().decode("utf-8", "surrogateescape")
        reference = (folder / case["reference"]).read_text()
        tolerance = case["expected"].get("tolerance")
        if case["side"] == "solution":
            tests = tuple(case["tests"])
            row = JudgeRow(case["id"], reference, text, case["entry_point"], tests=tests, tolerance=tolerance)
        else:
            candidate = (folder / case["candidate"]).read_text()
            row = JudgeRow(case["id"], reference, candidate, case["entry_point"], suite=text, tolerance=tolerance)
        rows.append((row, case))
    return rows


def complaint(report: dict[str, Any], case: dict[str, Any]) -> str:
    """Why a report is none that the case allows; empty when it is."""
    wanted, tests = case["expected"], report["tests"]
    passes = [test["verdict"] == "passed" for test in tests]
    valid = [test["valid"] for test in tests]
    if case["side"] == "tests":
        correct = sum(test["stated_correctly"] is True for test in tests)
        wrong = sum(test["stated_correctly"] is False for test in tests)
        if sum(valid) not in [wanted["valid_tests"], *wanted.get("accept_valid", [])]:
            return f"{sum(valid)} valid"
        if correct not in [wanted["correct"], *wanted.get("accept_correct", [])]:
            return f"{correct} correct"
        return "" if wrong <= wanted.get("max_wrong", wrong) else f"{wrong} wrong"
    if passes not in [wanted["passes"], *wanted.get("accept_passes", [])]:
        return f"passes {passes}"
    if any(told is not None and told != found for told, found in zip(wanted["valid_tests"], valid, strict=True)):
        return f"valid {valid}"
    statuses = {WORDS.get(word, word) for word in [wanted["status"], *wanted.get("accept_status", [])]}
    return "" if report["status"] in statuses or all(passes) else f"status {report['status']}"


@pytest.mark.parametrize("surrounded", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["alone", "in a batch"])
def test_every_case_gets_an_allowed_verdict(shared: Path, sandbox: LocalSandbox, surrounded: bool) -> None:
    if sandbox.layers["pids_cgroup"] and sandbox.layers["user_namespace"]:
        pytest.skip("no process limit here: a fork bomb must not run")
    judge = RowJudge(sandbox, LIMITS)
    pairs = rows_of(shared)
    assert len(pairs) == 60
    rows = [row for row, _ in pairs]
    if surrounded:
        rows = [each for row in rows for each in (GOOD, row, GOOD)]
    reports = list(judge.stream(rows, 2))
    if surrounded:
        good, reports = [r for r in reports if r["id"] == "good"], [r for r in reports if r["id"] != "good"]
        assert {report["status"] for report in good} == {"ok"}
        assert len(good) == 120
    faults = {
        case["id"]: fault
        for report, (_, case) in zip(reports, pairs, strict=True)
        if (fault := complaint(report, case))
    }
    assert not faults
