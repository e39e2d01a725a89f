"""Which programs may answer several calls in one process."""

import ast
import json
import sys
import warnings
from pathlib import Path

import pytest

import codea1_cli.sandbox.local as local

sys.path.insert(0, str(Path(local.__file__).parent / "jailed"))
import statelessness

sys.path.pop(0)

STATELESS = [
    "\ndef f(x): return x\n",
    "import math\nfrom typing import List, Optional\ndef f(x: List[int]) -> Optional[int]:\n    total = 0\n    for y in sorted(x, key=abs): total += math.floor(y)\n    return total\n",
    "from collections import Counter, defaultdict\ndef f(s):\n    groups = defaultdict(list)\n    for c in s: groups[c].append(c)\n    return Counter(s).most_common(1), dict(groups)\n",
    'ROMAN = {"I": 1, "V": 5}\nORDER = ["I", "V"]\nLIMIT = 10 ** 9 + 7\ndef helper(c): return ROMAN[c]\ndef f(s): return sum(map(helper, s)) % LIMIT + len(ORDER)\n',
    "class Node:\n    def __init__(self, value, next=None):\n        self.value = value\n        self.next = next\ndef f(xs):\n    head = None\n    for x in xs:\n        node = Node(x)\n        node.next = head\n        head = node\n    return head.value if head else None\n",
    'import sys\nsys.setrecursionlimit(10000)\ndef f(n):\n    memo = {}\n    def go(k):\n        if k < 2: return k\n        if k not in memo: memo[k] = go(k - 1) + go(k - 2)\n        return memo[k]\n    return go(n)\nif __name__ == "__main__":\n    print(f(3))\n',
    'import re\nWORD = re.compile(r"a+")\nf = lambda s: WORD.findall(s)\n',
    "import heapq\ndef f(xs):\n    heap = []\n    for x in xs: heapq.heappush(heap, x)\n    return [heapq.heappop(heap) for _ in range(len(heap))]\n",
    "from dataclasses import dataclass, field\n@dataclass\nclass A:\n    v: int\n    w: list = field(default_factory=list)\ndef f(x): return A(x).v\n",
]
STATEFUL = [
    "\nn = []\ndef f(x): n.append(x)\n",
    "n = {}\ndef f(x): n[x] = 1\n",
    "n = 0\ndef f(x):\n    global n\n    n += x\n",
    "def f(x, seen=[]): return seen\n",
    "def f(x): f.n = x\n",
    "class A:\n    n = []\ndef f(x): A.n.append(x)\n",
    "class A:\n    n = 0\ndef f(x): A.n += 1\n",
    "class A:\n    def g(self): self.__class__.n = 1\ndef f(x): A().g()\n",
    "class A:\n    def g(self): t = type(self); t.n = 1\ndef f(x): A().g()\n",
    "import random\ndef f(x): return random.random()\n",
    "import functools\n@functools.lru_cache\ndef f(x): return [x]\n",
    "import os\ndef f(x): return os.getpid()\n",
    'def f(x): return open("a")\n',
    'def f(x): globals()["n"] = 1\n',
    'def f(x): setattr(f, "n", 1)\n',
    'def f(x): f.__dict__["n"] = 1\n',
    "def f(x): f.__defaults__ = (1,)\n",
    "import math\ndef f(x): math.pi = 3\n",
    "def f(x):\n    import math\n    math.pi = 3\n",
    "def f(x):\n    g = f\n    g.n = 1\n",
    "def f(x):\n    for g in (f,): g.n = 1\n",
    "def make():\n    n = 0\n    def g(x):\n        nonlocal n\n        n += 1\n        return n\n    return g\nf = make()\n",
    "it = iter([1, 2])\ndef f(x): return next(it)\n",
    "A = []\nB = A\ndef f(x): B.append(1)\n",
    "acc = []\ndef f(x):\n    def g(): acc = 1\n    acc.append(x)\n",
    "acc = []\ndef f(x):\n    [acc for acc in x]\n    acc.append(x)\n",
    "import heapq\nH = []\ndef f(x): heapq.heappush(H, x)\n",
    "import operator\nH = []\ndef f(x): operator.iadd(H, [x])\n",
    "T = [[1]]\ndef f(x): T[0].append(x)\n",
    "T = [1]\ndef f(x): return T\n",
    "import decimal\ndef f(x): decimal.getcontext().prec = x\n",
    "import sys\ndef f(x): sys.setrecursionlimit(x)\n",
    "import threading\ndef f(x): return x\n",
    "for i in range(3): pass\ndef f(x): return i\n",
    'def f(x): exec("n = 1", f.__globals__)\n',
    "def f(x): print(x, file=__builtins__)\n",
    "import numpy as np\ndef f(x): return np.random.rand()\n",
    "from enum import Enum\nclass A(Enum):\n    X = []\ndef f(x): A.X.value.append(x)\n",
    "def float(x): return [x]\nX = float(1)\ndef f(x): X.append(x)\n",
]


@pytest.mark.parametrize("program", STATELESS)
def test_an_ordinary_program_keeps_no_state(program: str) -> None:
    assert statelessness.is_stateless(ast.parse(program))


@pytest.mark.parametrize("program", STATEFUL)
def test_a_program_that_might_keep_state_is_not_trusted(program: str) -> None:
    assert not statelessness.is_stateless(ast.parse(program))


@pytest.mark.parametrize("call", ["f(1, [2], k='a')", "f(-1 + 2, {1: (2,)})", "f(float('inf'))", "f(str(3).upper())"])
def test_a_plain_call(call: str) -> None:
    assert statelessness.is_plain_call(call)


@pytest.mark.parametrize(
    "call", ["f(y := 1)", "f(globals())", "f(g.__dict__)", "f(lambda: 1)", "f(open('a'))", "f(exec('n=1'))"]
)
def test_a_call_that_may_leave_something_behind(call: str) -> None:
    assert not statelessness.is_plain_call(call)


@pytest.mark.shared
def test_most_references_are_stateless(shared: Path) -> None:
    stateless = total = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # references with "\\d" outside raw strings
        for line in (shared / "data/train.jsonl").open():
            stateless += statelessness.is_stateless(ast.parse(json.loads(line)["reference"]))
            total += 1
    assert stateless / total > 0.75
