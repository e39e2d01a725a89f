"""The judge: what is a test, what passes it, what is computed once, and what is never a verdict."""

import gc
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.errors import UserError
from codea1_cli.judging.judge import Judge
from codea1_cli.judging.judge_rows import JudgeRow, RowJudge, read_rows
from codea1_cli.judging.references import ReferenceCache, call_limit
from codea1_cli.sandbox.base import Limits, ProgramRun
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import Answer, AnswerKind, Expected, Value, Verdict
from tests.sandbox.shared import QUICK, verdicts


class Scripted:
    """A sandbox that answers from a table and counts what it is asked."""

    def __init__(self, answers: dict[tuple[str, int], Answer]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int]] = []

    def run(
        self, program: str, entry_point: str, calls: Sequence[str], limits: Limits, hash_seed: int = 0
    ) -> ProgramRun:
        self.asked += [(call, hash_seed) for call in calls]
        answers = [self.answers.get((call, hash_seed)) or self.answers[call, 0] for call in calls]
        loaded = None if any(a.kind is AnswerKind.UNSCORED for a in answers) else True
        return ProgramRun(loaded, "", answers)

    def close(self) -> None: ...


def value(wire: str) -> Answer:
    return Answer(AnswerKind.VALUE, Value(wire=wire))


@pytest.mark.parametrize(
    ("program", "standard"),
    [
        ("import math, os.path\nfrom collections import abc\ndef f(x): return x", True),
        ("def f(x): return x\nprint(f(1))", True),
        ("def f(x:", True),
        ("def f(x):\n    import numpy.linalg\n    return x", False),
        ("import math, pandas as pd", False),
        ("from . import helper", False),
        ("import importlib\nimportlib.import_module('sympy')", False),
    ],
)
def test_what_imports_the_standard_library_alone_has_a_second_to_load(program: str, standard: bool) -> None:
    """Or ten times what the reference's loading took, which itself has the whole limit; without a reference the clock
    alone limits it."""
    seen: list[float] = []

    class Watched(Scripted):
        loading = 0.01

        def run(self, program, entry_point, calls, limits, hash_seed=0):  # type: ignore[no-untyped-def]
            seen.append(limits.load_cpu_s)
            run = super().run(program, entry_point, calls, limits, hash_seed)
            run.load_seconds = self.loading
            return run

    def limit(box: Watched) -> float:
        judge = Judge(box, limits=QUICK)
        expected = judge.expected(program, "f", ["f(1)"])
        assert set(seen) == {math.inf}
        judge.check(program, "f", ["f(1)"], expected)
        found = seen[-1]
        seen.clear()
        return found

    box = Watched({("f(1)", 0): value("1")})
    assert limit(box) == (1.0 if standard else math.inf)
    box.loading = 0.5
    assert limit(box) == (5.0 if standard else math.inf)
    Judge(box, limits=QUICK).check(
        program, "f", ["f(1)"], {"f(1)": Expected("f(1)", True, 1, seconds=math.inf, load_seconds=math.inf)}
    )
    assert seen == [math.inf]


def test_what_loading_a_reference_took_is_kept_with_its_answers(tmp_path: Path) -> None:
    slow = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ndef f(x): return x"
    with LocalSandbox(1) as box:
        cache = ReferenceCache(tmp_path)
        first = Judge(box, limits=QUICK, cache=cache).expected(slow, "f", ["f(1)"])["f(1)"]
        assert first.load_seconds >= 0.3
        cache.close()
        again = Judge(Scripted({}), limits=QUICK, cache=ReferenceCache(tmp_path)).expected(slow, "f", ["f(1)"])["f(1)"]
        assert again.load_seconds == first.load_seconds


def test_a_reference_decides_what_a_test_is() -> None:
    box = Scripted(
        {
            ("f(1)", 0): value("1"), ("f(2)", 0): value("2"), ("f(2)", 1): value("3"),
            ("f(3)", 0): Answer(AnswerKind.RAISED, detail="ValueError: no"), ("f(4)", 0): Answer(AnswerKind.UNENCODABLE, detail="a value of type X"),
            ("f(5)", 0): Answer(AnswerKind.TIMEOUT), ("f(6)", 0): Answer(AnswerKind.UNSCORED), ("f(7)", 0): value("1"), ("f(7)", 1): value("1.0000000001"),
        }
    )  # fmt: skip
    found = Judge(box, limits=QUICK).expected("ref", "f", [f"f({n})" for n in range(1, 8)])
    assert [found[f"f({n})"].valid for n in range(1, 8)] == [True, False, False, False, False, False, True]
    assert found["f(2)"].reason == "differs between runs"
    assert "ValueError" in found["f(3)"].reason
    assert "type X" in found["f(4)"].reason
    assert found["f(6)"].reason == "unscored"


def test_each_answer_is_computed_once_in_memory_and_on_disk(tmp_path: Path) -> None:
    box = Scripted(
        {
            ("f(1)", 0): value('{"t":[1,{"f":"nan"}]}'),
            ("f(2)", 0): Answer(AnswerKind.RAISED, detail="E"),
            ("f(3)", 0): Answer(AnswerKind.TIMEOUT),
        }
    )
    calls = ["f(1)", "f(1)", "f(2)", "f(3)"]
    cache = ReferenceCache(tmp_path)
    judge = Judge(box, limits=QUICK, cache=cache)
    first = judge.expected("ref", "f", calls)
    assert box.asked == [("f(1)", 0), ("f(2)", 0), ("f(3)", 0), ("f(1)", 1)]  # the others are no tests already
    assert judge.expected("ref", "f", calls) == first
    assert len(box.asked) == 4
    cache.close()
    again = Judge(box, limits=QUICK, cache=ReferenceCache(tmp_path)).expected("ref", "f", calls)
    assert box.asked[4:] == [("f(3)", 0)]  # a time-out may have been the machine's
    assert repr(again) == repr(first)
    Judge(box, limits=QUICK, cache=ReferenceCache(tmp_path)).expected("another reference", "f", ["f(1)"])
    Judge(box, limits=QUICK, tolerance=0.1, cache=ReferenceCache(tmp_path)).expected("ref", "f", ["f(1)"])
    assert len(box.asked) == 9


@pytest.mark.parametrize(
    ("time_s", "slowest", "limit"),
    [
        (2.0, 0.0, 0.25), (2.0, 0.025, 0.25), (2.0, 0.026, 0.5), (2.0, 0.1, 1.0), (2.0, 0.11, math.inf), (2.0, 9.0, math.inf),
        (2.0, None, math.inf), (0.1, 0.0, math.inf), (3.0, 0.2, 2.0), (3.0, 0.21, math.inf),
    ],
)  # fmt: skip
def test_a_call_may_take_ten_times_what_the_reference_needs(time_s: float, slowest: float, limit: float) -> None:
    assert call_limit(time_s, slowest, 0.25) == limit


class Clocked:
    """A sandbox in which f(n) takes n milliseconds of processor time, g(n) the same by the clock alone; it answers the
    first call that does not fit and none after it."""

    workers = 3

    def __init__(self, enough: int = -1) -> None:
        self.asked: list[tuple[str, int, float]] = []
        self.enough = enough
        self.patience: list[tuple[int, int]] = []  # of each run: its calls, and how many may be late at full limits

    def run(
        self, program: str, entry_point: str, calls: Sequence[str], limits: Limits, hash_seed: int = 0
    ) -> ProgramRun:
        answers, ran_out = [], 0
        self.patience.append((len(calls), limits.patience))
        for call in calls:
            seconds = int(call[2:-1]) / 1000
            hurried = 8 if ran_out >= limits.patience else 1
            late = seconds > min(limits.cpu_s, limits.time_s) / hurried
            self.asked.append((call, hash_seed, limits.cpu_s))
            kind = AnswerKind.TIMEOUT if late else AnswerKind.VALUE
            used = limits.cpu_s if late and call[0] == "f" and limits.cpu_s < math.inf else 0.0 if late else seconds
            answers.append(Answer(kind, None if late else Value(wire="1"), "time limit" * late, used))
            if len(answers) == self.enough and limits.enough_s < math.inf:
                break
            ran_out += late
            if late and ran_out == limits.stop_after:
                break
        return ProgramRun(True, "", answers)


def test_a_call_that_ran_out_of_time_is_not_run_under_the_next_hash_seed(tmp_path: Path) -> None:
    box = Clocked()
    cache = ReferenceCache(tmp_path)
    calls = [f"f({n})" for n in (1, 9000, 2, 9001, 9002, 3)]
    found = Judge(box, limits=Limits(time_s=2.0), cache=cache).expected("ref", "f", calls)
    assert [found[call].valid for call in calls] == [True, False, True, False, False, True]
    assert found["f(9000)"].reason == "timeout: time limit"
    asked = Counter((call, seed) for call, seed, _ in box.asked)
    quick, late = (1, 2, 3), (9000, 9001, 9002)  # a late one: with an eighth of the limit, then with all of it
    assert asked == {(f"f({n})", seed): 1 for n in quick for seed in (0, 1)} | {(f"f({n})", 0): 2 for n in late}
    assert {limit for _, _, limit in box.asked} == {0.25}
    cache.close()
    again = Judge(box, limits=Limits(time_s=2.0), cache=ReferenceCache(tmp_path)).expected("ref", "f", calls)
    assert asked.total() == len(box.asked)  # that processor time ran out says something of the program: it is kept
    assert repr(again) == repr(found)


@pytest.mark.parametrize("enough", [1, 2, 5])
def test_a_slow_references_other_calls_are_answered_side_by_side_each_once_per_hash_seed(enough: int) -> None:
    box, calls = Clocked(enough), [f"f({n})" for n in (1, 2, 3, 9000, 4, 5, 6, 7, 8)]
    found = Judge(box, limits=Limits(time_s=2.0)).expected("ref", "f", calls)
    assert [call for call in calls if not found[call].valid] == ["f(9000)"]
    asked = Counter((call, seed) for call, seed, _ in box.asked if call != "f(9000)")
    assert asked == dict.fromkeys(((call, seed) for call in calls for seed in (0, 1) if call != "f(9000)"), 1)
    assert Counter(size for size, _ in box.patience)[len(calls)] == 1


def test_the_problems_own_calls_say_what_the_others_may_take() -> None:
    box = Clocked()
    judge = Judge(box, limits=Limits(time_s=2.0))
    found = judge.expected("ref", "f", ["f(30)", "f(400)", "f(900)"], own=["f(40)"])
    assert [answer.valid for answer in found.values()] == [True, True, False]
    assert {limit for call, _, limit in box.asked if call == "f(40)"} == {math.inf}
    assert {limit for call, _, limit in box.asked if call != "f(40)"} == {0.5}
    # The same call is judged by the same limit whatever else is asked with it.
    assert not judge.expected("ref", "f", ["f(900)", "f(200)"], own=["f(40)"])["f(900)"].valid
    assert judge.expected("ref", "f", ["f(900)"], own=["f(40)", "f(900)"])["f(900)"].valid
    assert not judge.expected("ref", "f", ["f(900)"], own=["f(40)"])["f(900)"].valid  # an answer that took too long


def test_without_own_calls_the_quick_ones_say_it_and_a_lone_call_may_take_all() -> None:
    def valid(*numbers: int) -> list[bool]:
        calls = [f"f({n})" for n in numbers]
        return [a.valid for a in Judge(Clocked(), limits=Limits(time_s=2.0)).expected("ref", "f", calls).values()]

    assert valid(1, 300) == [True, False]
    assert valid(40, 300) == [True, True]
    assert valid(1900) == [True]
    assert valid(1900, 1800) == [True, True]
    assert valid(1900, 2100) == [True, False]


def test_a_time_out_by_the_clock_is_not_kept_and_no_reason_to_give_more(tmp_path: Path) -> None:
    box = Clocked()
    for _ in range(2):
        cache = ReferenceCache(tmp_path)
        found = Judge(box, limits=Limits(time_s=2.0), cache=cache).expected("ref", "f", ["g(1)", "g(9000)"])
        assert found["g(9000)"].reason == "timeout: time limit"
        cache.close()
    assert [call for call, _, _ in box.asked] == ["g(1)", "g(9000)", "g(9000)", "g(1)", "g(9000)"]


def test_candidates_have_twice_the_least_and_ten_times_the_slowest_answer() -> None:
    box = Clocked()
    judge = Judge(box, limits=Limits(time_s=2.0))
    expected = judge.expected("ref", "f", ["f(1)", "f(80)"], own=["f(80)"])
    box.asked.clear()
    judge.check("cand", "f", ["f(1)"], expected)
    judge.check("cand", "f", ["f(1)", "f(80)"], expected)
    assert [limit for _, _, limit in box.asked] == [0.5, 1.0, 1.0]


def test_a_candidate_that_keeps_running_out_of_time_goes_on_side_by_side() -> None:
    calls = [f"f({n})" for n in (1, 9000, 9001, 2, 9002, 9003, 3, 9004, 4)]
    known = {call: Expected(call, True, 1, "1", wire="1", seconds=0.001) for call in calls}
    verdicts = []
    for late, runs in (
        (0, [(9, 0), (3, 0), (3, 0), (1, 0), *[(1, 3)] * 3]),
        (1, [(9, 0), (3, 0), (3, 0), (1, 0), *[(1, 2)] * 2]),
        (2, [(9, 0), (3, 0), (3, 0), (1, 0), (1, 1)]),
        (3, [(9, 0), (3, 0), (3, 0), (1, 0)]),
    ):
        box = Clocked()
        found = Judge(box, limits=Limits(time_s=2.0)).check("c", "f", calls, known, late=late)
        assert box.patience[0] == runs[0]
        assert sorted(box.patience) == sorted(runs)
        verdicts.append({call: test.verdict for call, test in found.verdicts.items()})
    assert all(found == verdicts[0] for found in verdicts)
    assert [call for call, verdict in verdicts[0].items() if verdict is Verdict.PASSED] == [
        "f(1)", "f(2)", "f(3)", "f(4)",
    ]  # fmt: skip


@pytest.mark.parametrize("enough", [-1, 1, 3, 4, 9])
def test_a_slow_candidates_other_calls_are_answered_side_by_side(enough: int) -> None:
    """After how many calls a process is left depends on how busy the machine is; no verdict does. Of the calls after the
    third that is out of time, f(100) is within the limit and beyond an eighth of it."""
    calls = [f"f({n})" for n in (1, 4, 100, 9000, 9001, 2, 9002, 101, 9003, 3, 102)]
    known = {call: Expected(call, True, 1, "1", wire="1", seconds=0.001) for call in calls}
    box = Clocked(enough)
    found = Judge(box, limits=Limits(time_s=2.0)).check("c", "f", calls, known)
    passed = [call for call, test in found.verdicts.items() if test.verdict is Verdict.PASSED]
    assert passed == ["f(1)", "f(4)", "f(100)", "f(2)", "f(3)"]
    assert list(found.verdicts) == calls
    split = [size for size, patience in box.patience[1:] if patience == 0]
    assert sorted(split) == {1: [2, 4, 4]}.get(enough, [2, 3, 3])


@given(
    kinds=st.lists(st.sampled_from([1, 100, 9000]), max_size=30),
    late=st.integers(0, 4),
    workers=st.integers(1, 4),
    enough=st.integers(-1, 12),
    stop_late=st.booleans(),
)
def test_whoever_answers_three_late_calls_have_the_whole_limit_and_those_after_them_an_eighth(
    kinds: list[int], late: int, workers: int, enough: int, stop_late: bool
) -> None:
    calls = [f"f({kind + place})" for place, kind in enumerate(kinds)]
    known = {call: Expected(call, True, 1, "1", wire="1", seconds=0.001) for call in calls}
    box = Clocked(enough)
    box.workers = workers
    found = Judge(box, limits=Limits(time_s=2.0)).check("c", "f", calls, known, stop_late, late=late)
    passed = []
    if stop_late:
        first = next((place for place, kind in enumerate(kinds) if kind == 9000), len(kinds))
        calls, kinds, late = calls[: first + 1], kinds[: first + 1], 0
    for call, kind in zip(calls, kinds, strict=True):
        if kind == 1 or (kind == 100 and late < 3):
            passed.append(call)
        late += kind == 9000
    assert list(found.verdicts) == calls
    assert [call for call, test in found.verdicts.items() if test.verdict is Verdict.PASSED] == passed


@pytest.mark.parametrize("slow", [False, True])
def test_nothing_counts_after_a_forged_answer_whoever_answers_the_calls_after_it(
    sandbox: LocalSandbox, slow: bool
) -> None:
    program = (
        "import os, time\ndef f(x):\n    for number in range(3, 60) if x == 5 else ():\n"
        "        try: os.write(number, b'x' * 64)\n        except OSError: pass\n"
        f"    time.sleep({0.05 * slow})\n    return x"
    )
    calls = [f"f({n})" for n in range(14)]
    known = {call: Expected(call, True, n, str(n), seconds=0.001) for n, call in enumerate(calls)}
    found = Judge(sandbox, limits=QUICK).check(program, "f", calls, known).verdicts
    assert [call for call in calls if found[call].verdict is Verdict.PASSED] == calls[:5]
    assert {found[call].verdict for call in calls[5:]} == {Verdict.CRASHED}


def test_a_judge_that_is_done_with_leaves_no_thread() -> None:
    gc.collect()
    before, most = threading.active_count(), 0
    gc.disable()
    try:
        for n in range(30):
            Judge(Clocked(1), limits=QUICK).expected(f"ref{n}", "f", [f"f({k})" for k in range(9)])
            most = max(most, threading.active_count())
    finally:
        gc.enable()
    assert most <= before + 3 * Clocked.workers


def test_what_has_not_begun_is_dropped_when_a_call_cannot_be_asked() -> None:
    class Broken(Clocked):
        def run(
            self, program: str, entry_point: str, calls: Sequence[str], limits: Limits, hash_seed: int = 0
        ) -> ProgramRun:
            if len(calls) == 1:
                time.sleep(0.02)
            if calls == ["f(9005)"]:
                raise ZeroDivisionError
            return super().run(program, entry_point, calls, limits, hash_seed)

    box = Broken()
    with pytest.raises(ZeroDivisionError):
        Judge(box, limits=Limits(time_s=2.0)).expected("ref", "f", [f"f({9000 + k})" for k in range(40)])
    asked = len(box.asked)
    time.sleep(0.2)
    assert len(box.asked) <= asked + Broken.workers


def test_a_service_gets_no_more_parts_than_it_takes_requests() -> None:
    box = Clocked(1)
    box.workers, box.requests = 64, 2  # type: ignore[attr-defined]
    Judge(box, limits=Limits(time_s=2.0)).expected("ref", "f", [f"f({k})" for k in range(41)])
    assert [size for size, _ in box.patience].count(20) == 4


def test_a_fault_reaches_everybody_who_waits() -> None:
    class Broken:
        def run(self, *_: object) -> ProgramRun:
            raise ZeroDivisionError

    judge = Judge(Broken(), limits=QUICK)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            judge.expected("ref", "f", ["f(1)"])


def test_an_unscored_answer_is_asked_again() -> None:
    box = Scripted({("f(1)", 0): Answer(AnswerKind.UNSCORED)})
    judge = Judge(box, limits=QUICK)
    assert judge.expected("ref", "f", ["f(1)"])["f(1)"].reason == "unscored"
    box.answers["f(1)", 0] = value("1")
    assert judge.expected("ref", "f", ["f(1)"])["f(1)"].valid


def test_the_memory_of_a_cache_is_bounded() -> None:
    box = Scripted({(f"f({n})", 0): value(str(n)) for n in range(50)})
    cache = ReferenceCache(memory_entries=10)
    judge = Judge(box, limits=QUICK, cache=cache)
    for n in range(50):
        judge.expected("ref", "f", [f"f({n})"])
    assert len(cache._memory) == 10


def test_concurrent_callers_do_not_compute_twice(sandbox: LocalSandbox) -> None:
    asked = []

    class Counting:
        def run(self, program, entry_point, calls, limits, hash_seed=0):
            asked.extend(calls)
            return sandbox.run(program, entry_point, calls, limits, hash_seed)

    judge = Judge(Counting(), limits=Limits(time_s=20))
    calls = [f"f({n})" for n in range(5)]
    threads = [threading.Thread(target=judge.expected, args=("def f(x): return x", "f", calls)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 10


def test_a_sandbox_failure_is_unscored_and_nothing_else() -> None:
    box = Scripted({("f(1)", 0): value("1")})
    judge = Judge(box, limits=QUICK)
    expected = judge.expected("ref", "f", ["f(1)"])
    box.answers["f(1)", 0] = Answer(AnswerKind.UNSCORED)
    result = judge.check("cand", "f", ["f(1)"], expected)
    assert result.loaded is None
    assert result.load_verdict is Verdict.UNSCORED
    assert verdicts(result) == ["unscored"]


@given(st.sampled_from(list(AnswerKind)))
def test_only_a_value_can_pass(kind: AnswerKind) -> None:
    box = Scripted({("f(1)", 0): value("1")})
    judge = Judge(box, limits=QUICK)
    expected = judge.expected("ref", "f", ["f(1)"])
    box.answers["f(1)", 0] = value("1") if kind is AnswerKind.VALUE else Answer(kind)
    passed = judge.check("cand", "f", ["f(1)"], expected).verdicts["f(1)"].verdict is Verdict.PASSED
    assert passed == (kind is AnswerKind.VALUE)


def test_invalid_calls_are_not_run_on_candidates() -> None:
    box = Scripted({("f(1)", 0): value("1"), ("f(2)", 0): Answer(AnswerKind.RAISED)})
    judge = Judge(box, limits=QUICK)
    expected = judge.expected("ref", "f", ["f(1)", "f(2)"])
    box.asked.clear()
    result = judge.check("cand", "f", ["f(1)", "f(2)", "f(1)", "f(9)"], expected)
    assert box.asked == [("f(1)", 0)]
    assert list(result.verdicts) == ["f(1)"]


ROW = {"id": "a", "reference": "def f(x): return x", "candidate": "def f(x): return x", "entry_point": "f"}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("{", "not JSON"), ("[]", "a list, not an object"), ("[" * 100000, "not JSON"), (json.dumps({**ROW}), "tests or suite"),
        (json.dumps({**ROW, "tests": [], "suite": ""}), "tests or suite"), (json.dumps({**ROW, "tests": "x"}), "tests"),
        (json.dumps({**ROW, "tests": [1]}), "tests"), (json.dumps({**ROW, "suite": 1}), "suite"),
        (json.dumps({k: v for k, v in ROW.items() if k != "reference"} | {"suite": ""}), "reference is missing"),
        (json.dumps({**ROW, "suite": "", "time_limit_s": 0}), "time_limit_s"), (json.dumps({**ROW, "suite": "", "memory_mb": "1"}), "memory_mb"),
        (json.dumps({**ROW, "suite": "", "tolerance": -1}), "tolerance"), (json.dumps({**ROW, "suite": "", "tolerance": True}), "tolerance"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path: Path, line: str, names: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**ROW, "suite": ""}) + "\n\n" + line + "\n")
    with pytest.raises(UserError, match=names) as caught:
        list(read_rows(file))
    assert f"{file}:3" in caught.value.what


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no\.jsonl"):
        list(read_rows(tmp_path / "no.jsonl"))


def report(sandbox: LocalSandbox, **fields: object) -> dict[str, object]:
    row = {
        "id": "r",
        "reference": "def f(x): return [x]",
        "candidate": "def f(x): return [x]",
        "entry_point": "f",
        **fields,
    }
    return RowJudge(sandbox, QUICK).judge(JudgeRow(**row))  # type: ignore[arg-type]


def test_a_row_of_tests_reports_every_test_in_order(sandbox: LocalSandbox) -> None:
    tests = (
        "assert f(1) == [1]", "assert f(2) == [3]", "assert f(1) == [1]", "assert f(3) != 1", "assert f(4) == f(4)", "assert g(1) == 1",
        "assert f(5)", "x = 1", "assert f(6) == [6]; assert f(7) == [7]", "assert f(", "assert f(8) is None", "assert 1 < f(1) < 3", "y = [0]\nassert f(y) == [[0]]",
    )  # fmt: skip
    found = report(sandbox, tests=tests)
    assert found["status"] == "ok"
    rows = found["tests"]
    assert [row["test"] for row in rows] == list(tests)
    assert [row["valid"] for row in rows] == [True, True] + [False] * 10 + [True]
    assert [row["stated_correctly"] for row in rows] == [True, False] + [None] * 10 + [True]
    assert [row["verdict"] for row in rows] == ["passed", "passed"] + [None] * 10 + ["passed"]
    assert rows[0]["expected"] == rows[0]["got"] == "[1]"
    assert all(row["reason"] for row in rows[2:12])


def test_the_status_is_the_worst_verdict(sandbox: LocalSandbox) -> None:
    test = ("assert f(1) == [1]", "assert f(2) == [2]")
    for candidate, status in (
        ("def f(x): return [x]", "ok"), ("def f(x): return [1]", "failed"), ("def f(x):\n    if x == 1: return 0\n    raise ValueError", "raised"),
        ("def f(x):\n    if x == 2: return [2]\n    while True: pass", "timeout"), ("def f(x", "load_error"), ("import os\nos._exit(0)", "crashed"),
        ("def f(x): return bytearray(1 << 40)", "memory"),
    ):  # fmt: skip
        assert report(sandbox, candidate=candidate, tests=test)["status"] == status
    assert report(sandbox, reference="def f(x): raise ValueError", tests=test)["status"] == "no_valid_test"
    assert (
        report(sandbox, reference="def f(x): raise ValueError", candidate="def f(", tests=test)["status"]
        == "load_error"
    )
    assert report(sandbox, tests=())["status"] == "no_valid_test"


def test_a_suite_is_read_as_a_model_writes_it(sandbox: LocalSandbox) -> None:
    suite = "Sure!\n```python\nx = 5\nassert f(x) == [5]\nassert f(2) == [9]\nassert total(1) == 1\n```\n"
    found = report(sandbox, suite=suite, candidate="def f(x): return [5]")
    assert [(t["valid"], t["stated_correctly"], t["verdict"]) for t in found["tests"]] == [
        (True, True, "passed"), (True, False, "failed"), (False, None, None),
    ]  # fmt: skip


def test_a_rows_own_limits_hold(sandbox: LocalSandbox) -> None:
    slow = "import time\ndef f(x):\n    time.sleep(0.8)\n    return [x]"
    test = ("assert f(1) == [1]",)
    assert report(sandbox, candidate=slow, tests=test, time_limit_s=0.4)["status"] == "timeout"
    assert report(sandbox, candidate=slow, tests=test, time_limit_s=20.0)["status"] == "ok"
    near = "def f(x): return [x + 0.01]"
    assert report(sandbox, candidate=near, tests=test)["status"] == "failed"
    assert report(sandbox, candidate=near, tests=test, tolerance=0.1)["status"] == "ok"


def test_a_stream_keeps_the_order_and_few_rows_in_hand(sandbox: LocalSandbox) -> None:
    handed = 0

    def rows():
        nonlocal handed
        for n in range(40):
            handed += 1
            yield JudgeRow(
                str(n), "def f(x): return x", f"def f(x): return x + {n % 2}", "f", tests=("assert f(1) == 1",)
            )

    seen = []
    for found in RowJudge(sandbox, Limits(time_s=20)).stream(rows(), 2):
        seen.append((found["id"], found["status"]))
        assert handed - len(seen) <= 8
    assert seen == [(str(n), "failed" if n % 2 else "ok") for n in range(40)]
