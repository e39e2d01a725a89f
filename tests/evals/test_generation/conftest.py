from collections.abc import Iterator

import pytest

from codea1_cli.evals.test_generation.evaluation import WARM
from codea1_cli.evals.test_generation.execution import MutantLimits, TestRunner
from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.local import LocalSandbox
from tests.evals.test_generation.hand_made import QUICK


@pytest.fixture(scope="session")
def box() -> Iterator[LocalSandbox]:
    with LocalSandbox(2, warm=WARM) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def runner(box: LocalSandbox) -> TestRunner:
    return TestRunner(box, QUICK, MutantLimits(least_s=5.0))


@pytest.fixture(scope="session")
def suite_judge(box: LocalSandbox) -> Judge:
    return Judge(box, limits=QUICK)
