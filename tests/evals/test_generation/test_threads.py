"""Python's parser fails when two threads build trees at once; reading suites and making mutants are spared that."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

from codea1_cli.evals.test_generation import make_mutants
from codea1_cli.evals.test_generation.execution import coverage_of
from codea1_cli.extract import parse_suite
from tests.evals.test_generation.hand_made import SIGN


class Cycle:
    """Rubbish with a finaliser: collecting it amid the parser's work is where threads change places."""

    def __init__(self):
        self.me = self

    def __del__(self):
        pass


def work(number):
    suite = "\n".join(f"assert f([{'(1, 2), ' * 30}]) == {n}" for n in range(20))
    for _ in range(5):
        Cycle()
        parse_suite(suite, "f")
        assert len(make_mutants(SIGN)) == 16
        assert coverage_of(SIGN, {(-1, 1), (1, -1)}).lines == 1
    return number


def test_many_threads_at_once():
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(8))) == list(range(8))
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
