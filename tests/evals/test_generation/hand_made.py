"""Functions small enough that every mutant, every covered line and every figure can be worked out on paper.

ADD has 11 mutants, `+` to each other binary operator. `add(2, 2) == 4` leaves `*` and `**` alive, `add(1, 0) == 1`
leaves `-`, `**`, `>>`, `<<`, `|`, `^`; together only `**` lives.

SIGN has 16: `>` to ==, !=, <, <=, >= (5; `is` is not tried before a number), `not` before the condition (1), `-1` to
+1, ~1, not 1 and 1 (4), and each of 0, 1, 1 by one up and one down (6). `sign(5) == 1` kills ==, <, <=, the `not`, and
the first 1 either way (6); `sign(-3) == -1` kills !=, <, <=, the `not`, the four of `-1` and its 1 either way (10);
together 13, and >=, `> 1`, `> -1` live.

NEG has 4: `-x` to +x, ~x, not x and x.
"""

from codea1_cli.evals.test_generation import Function
from codea1_cli.sandbox.base import Limits

QUICK = Limits(time_s=5.0, cpu_s=1.0, memory_mb=512)  # a loop uses processor time, a busy machine does not

ADD = "def add(a, b):\n    return a + b\n"
SIGN = "def sign(x):\n    if x > 0:\n        return 1\n    return -1\n"
NEG = "def neg(x):\n    return -x\n"


def function(source: str, *calls: str) -> Function:
    name = source.partition("(")[0].removeprefix("def ")
    return Function(name, name, f"What {name} does.", source, source, calls)
