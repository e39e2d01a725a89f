"""One program on one task: run in the sandbox, judged here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from codea1_cli.evals.benchmark import Status
from codea1_cli.evals.evalplus.oracle import Rules, post_of, shipped
from codea1_cli.evals.evalplus.tasks import PlusTask
from codea1_cli.evals.evalplus.values import NotAnAnswer
from codea1_cli.sandbox.base import Limits, ProgramRun, Sandbox, SandboxEnvironment
from codea1_cli.sandbox.verdicts import Answer, AnswerKind

PARTS = ("base", "plus")
MIN_S, FACTOR, TASK_S = 1.0, 4.0, 60.0  # of one input at least, times the reference's, of all inputs at most
GRACE_S = 2.0  # what EvalPlus adds to a task's time before it ends a process
MEMORY_MB = 4096
LOOK_S = 0.1  # a first look: a wrong answer among the first ones ends the matter
LONG_S = 1.0  # what the reference needs in all, where a look would see a part of it only
HANG_S = 1.0  # more than its first look may take a program that no alarm ends, before it is ended
REFERENCE_S = 900.0
# EvalPlus 0.3.1 leaves its loop before it counts an answer to HumanEval/32 as right, so no program passes there.
NEVER_PASSED = frozenset({("humaneval", "find_zero")})
_CUT = frozenset({AnswerKind.TIMEOUT, AnswerKind.CRASHED})  # what a first look ends in that says nothing yet


@dataclass(frozen=True)
class PartAnswers:
    """The reference's answers to one set of inputs, as the sandbox wrote them, and the seconds of each."""

    answers: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    fault: str = ""  # why there are fewer answers than inputs

    @cached_property
    def limits(self) -> list[float]:
        """Seconds that each input may take."""
        return [max(MIN_S, FACTOR * one) for one in self.seconds]

    @cached_property
    def total(self) -> float:
        """Seconds that all inputs together may take."""
        return min(TASK_S, sum(self.limits)) + GRACE_S

    @cached_property
    def is_long(self) -> bool:
        """Whether the reference takes so long that a first look is no look at all of it."""
        return sum(self.seconds) > LONG_S


class Checker:
    """Runs and judges programs of one benchmark, in a sandbox with the environment of `environment()`. Thread-safe."""

    def __init__(self, benchmark: str, sandbox: Sandbox) -> None:
        self.benchmark, self.sandbox = benchmark, sandbox
        self._texts: dict[str, tuple[PlusTask, Mapping[str, PartAnswers], str]] = {}
        self.python = str(getattr(sandbox, "hello", {}).get("python", ""))

    def expected(self, task: PlusTask) -> dict[str, PartAnswers] | None:
        """The reference's answers; None when the sandbox failed."""
        limits = Limits(REFERENCE_S, REFERENCE_S, 2 * MEMORY_MB, 1 << 20)
        run = self._run(task, task.reference, None, [f"part({name!r})" for name in PARTS], limits)
        if run.loaded is None or any(answer.kind is AnswerKind.UNSCORED for answer in run.answers):
            return None
        return {name: _expected(answer, task, name) for name, answer in zip(PARTS, run.answers, strict=True)}

    def reference_fault(self, task: PlusTask, expected: Mapping[str, PartAnswers]) -> str:
        """Why the reference itself would not pass; "" when it does."""
        for name in PARTS:
            part = expected[name]
            if part.fault:
                return f"{name}: {part.fault}"
            if sum(part.seconds) > part.total:
                return f"{name}: takes {sum(part.seconds):.0f} s of {part.total:.0f} s"
            verdict = self._judge(task, expected, name, "\n".join(part.answers), None)
            if verdict is not Status.PASS and (self.benchmark, task.entry_point) in NEVER_PASSED:
                return "EvalPlus 0.3.1 passes no program here"
            if verdict is not Status.PASS:
                return f"{name}: its own answers are not accepted"
        return ""

    def check(self, task: PlusTask, solution: str, expected: Mapping[str, PartAnswers]) -> dict[str, Status]:
        """The verdicts on a program, by "base" and "plus"."""
        # Loading has base's time alone: a program that is not loaded by then fails base, and so plus with it.
        load_s = expected["base"].total
        # A right program would take a long plus twice if it were looked at, and most that pass base are right.
        looks = {name: _look(expected[name]) for name in PARTS if name == "base" or not expected[name].is_long}
        limits = Limits(max(looks.values()) + HANG_S, load_s, MEMORY_MB, 1 << 20)
        calls = [f"part({name!r}, {look})" for name, look in looks.items()]
        run = self._run(task, solution, expected, calls, limits)
        found: dict[str, Status | None] = {}
        for name, answer in zip(looks, run.answers, strict=True):
            cut = run.loaded and answer.kind in _CUT
            found[name] = None if cut else self._verdict(task, expected, name, answer, solution)

        def whole(name: str) -> Status:
            limits = Limits(expected[name].total, load_s, MEMORY_MB, 1 << 20)
            answer = self._run(task, solution, expected, [f"part({name!r})"], limits).answers[0]
            # A program that claims a first look where there was none has taken the task over: wrong, not unscored.
            return self._verdict(task, expected, name, answer, solution) or Status.FAIL

        base = found["base"] or whole("base")
        # Plus counts only with base: without it, plus is looked at for the record and not run any longer.
        plus = found.get("plus") or (whole("plus") if base is Status.PASS else base)
        return {"base": base, "plus": plus}

    def _verdict(
        self, task: PlusTask, expected: Mapping[str, PartAnswers], name: str, answer: Answer, solution: str
    ) -> Status | None:
        if answer.kind is AnswerKind.UNSCORED:
            return Status.UNSCORED
        if answer.kind is AnswerKind.TIMEOUT:
            return Status.TIMEOUT
        text = answer.value.data if answer.value is not None else None
        if expected[name].fault or not isinstance(text, str):
            return Status.FAIL
        return self._judge(task, expected, name, text, solution)

    def _judge(
        self, task: PlusTask, expected: Mapping[str, PartAnswers], name: str, text: str, solution: str | None
    ) -> Status | None:
        """The verdict on a set's answers; None when the first look saw nothing wrong and more are to come."""
        rules = Rules(self.benchmark, task.entry_point, task.atol)
        right_lines = expected[name].answers
        lines = text.split("\n") if text or right_lines else []
        for number, line in enumerate(lines):
            if line == "+":
                return None
            if line == "!Late":
                return Status.TIMEOUT
            if number >= len(right_lines) or line[:1] == "!":
                return Status.FAIL
            right_line, arguments = right_lines[number], task.inputs[name][number]
            try:
                right = rules.right(line, right_line, arguments)
            except NotAnAnswer:
                whole = self._whole(task, expected, f"part({name!r}, 0, {number})", line, right_line, solution)
                try:
                    right = whole is not None and rules.right(*whole, arguments)
                except NotAnAnswer:
                    right = False
            if not right:
                return Status.FAIL
        never = (self.benchmark, task.entry_point) in NEVER_PASSED
        return Status.PASS if len(lines) == len(right_lines) and not never else Status.FAIL

    def _whole(
        self,
        task: PlusTask,
        expected: Mapping[str, PartAnswers],
        call: str,
        line: str,
        right_line: str,
        solution: str | None,
    ) -> tuple[str, str] | None:
        """Both answers in full where one is a digest, None where they cannot be equal: texts and integers never are
        when their digests differ, and a value too large to send is taken as different."""
        kinds = {text[1] for text in (line, right_line) if text[:1] == "#"}
        if solution is None or not kinds or kinds <= {"c"} or len(kinds) > 1:
            return None
        texts = []
        for text, source, limited in ((line, solution, expected), (right_line, task.reference, None)):
            if text[:1] == "#":
                run = self._run(task, source, limited, [call], Limits(TASK_S, TASK_S, MEMORY_MB, 1 << 20))
                value = run.answers[0].value
                if value is None or not isinstance(value.data, str) or value.data[:1] == "!":
                    return None
                text = value.data
            texts.append(text)
        return texts[0], texts[1]

    def _run(
        self, task: PlusTask, source: str, expected: Mapping[str, PartAnswers] | None, calls: list[str], limits: Limits
    ) -> ProgramRun:
        """A program's answers to calls of `in_jail`'s `part`; `expected` is None for the reference, which may take long
        and is trusted."""
        return self.sandbox.run(source, "part", calls, limits, given=self._given(task, expected))

    def _given(self, task: PlusTask, expected: Mapping[str, PartAnswers] | None) -> str:
        kept = self._texts.get(task.id)
        if kept is not None and kept[0] is task and kept[1] is expected:
            return kept[2]
        parts = {}
        for name in PARTS:
            slow: dict[int, float] = {}
            if expected is not None:
                slow = {i: limit for i, limit in enumerate(expected[name].limits) if limit > MIN_S}
            total = expected[name].total if expected is not None else REFERENCE_S
            parts[name] = {**shipped(task.inputs[name]), "limits": slow, "total": total}
        post = post_of(self.benchmark, task.entry_point)
        text = json.dumps({"entry": task.entry_point, "parts": parts, "post": post, "trusted": expected is None})
        if expected is not None:
            self._texts[task.id] = (task, expected, text)
        return text


def environment() -> SandboxEnvironment:
    """What the programs' sandbox is made with."""
    return SandboxEnvironment(harness=in_jail_source())


@cache
def in_jail_source() -> str:
    """`answers` and `in_jail` as one module, the sandbox's harness; codea1 itself is nowhere to be found there."""
    answers, in_jail = ((Path(__file__).parent / f"{name}.py").read_text("utf-8") for name in ("answers", "in_jail"))
    return answers + "\n".join(line for line in in_jail.split("\n") if not line.startswith("from codea1_cli."))


def _look(expected: PartAnswers) -> float:
    return LOOK_S if expected.is_long else max(LOOK_S, 2 * sum(expected.seconds))


def _expected(answer: Answer, task: PlusTask, name: str) -> PartAnswers:
    text = answer.value.data if answer.value is not None else None
    if not isinstance(text, str):
        return PartAnswers(fault=f"{answer.kind.value}: {answer.detail}".rstrip(": "))
    lines: Sequence[str] = text.split("\n")
    if lines[-1][:1] == "!":
        return PartAnswers(fault=f"raises {lines[-1][1:]}")
    seconds = [float(one) for one in json.loads(lines[-1])]
    return PartAnswers(list(lines[:-1]), seconds)
