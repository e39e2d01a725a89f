"""A program with a unittest module of its own: what is run, and what each of its tests came to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What one test came to. `TAMPERED`: the program changed what tests rest on. `UNSCORED`: the sandbox failed."""

    OK = "ok"
    SKIPPED = "skipped"
    RAISED = "raised"
    TAMPERED = "tampered"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    OUTPUT_LIMIT = "output_limit"
    LOAD_ERROR = "load_error"
    UNSCORED = "unscored"


@dataclass(frozen=True, slots=True)
class UnitModule:
    """`code`, then `tests`, in one module; `names`: the test methods of `class_name`, sorted as unittest runs them."""

    code: str
    tests: str
    names: tuple[str, ...]
    class_name: str = "TestCases"

    def encode(self) -> tuple[bytes, int]:
        """The job for a worker, and how many bytes of it a program's process may see before it is loaded."""
        head = json.dumps({"code": self.code, "class": self.class_name}).encode()
        return head + json.dumps({"tests": self.tests, "names": self.names}).encode(), len(head)


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """One test's outcome; `detail` says why it is not `OK`."""

    __test__ = False  # no test class of pytest's

    kind: Outcome
    detail: str = ""


@dataclass(slots=True)
class UnitRun:
    """`tests` in the order of the names; `whole` is what befell the class or the module beside them.

    `loaded` is None when the sandbox failed, False when the program could not be loaded; `whole` then says why.
    """

    loaded: bool | None
    tests: list[TestOutcome]
    whole: TestOutcome
    seconds: float = 0.0

    @classmethod
    def unscored(cls, module: UnitModule, why: str) -> UnitRun:
        """The run that did not take place."""
        outcome = TestOutcome(Outcome.UNSCORED, why)
        return cls(None, [outcome] * len(module.names), outcome)

    @property
    def first_fault(self) -> TestOutcome | None:
        """The first outcome that is neither OK nor SKIPPED, the whole's before the tests'."""
        everything = [self.whole, *self.tests]
        return next((o for o in everything if o.kind not in (Outcome.OK, Outcome.SKIPPED)), None)
