"""Whatever stands in a column, a row becomes a problem or is skipped by a named reason; it never stops the run."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codea1_cli.data.sources.kodcode import BenchmarkTasks, KodCode, Mbpp
from codea1_cli.data.sources.rows import FileRows
from codea1_cli.data.sources.table import MappedRows
from codea1_cli.data.stages import Stages


def evalplus(path):
    return BenchmarkTasks("evalplus", path)


CODE = [
    "def f(x):\n    return x",
    "async def f(): pass",
    "class f: pass",
    "def f(x=" + "(" * 150 + "1" + ")" * 150 + "): pass",
    "def f(): return " + "-" * 3000 + "1",
    "def f(x): return " + "[" * 90 + "x" + "]" * 90,
    "def \ud800(): pass",
    "def f(x=" + "+".join("1" * 800) + "): pass",
    "def f(x=f" + "()" * 900 + "): pass",
    "x = 1",
    "def f(:",
    "\0",
    "assert f(1) == 1",
    "def test_a():\n    r = f(" + "[" * 80 + "]" * 80 + ")\n    assert r == " + "+1" * 4000,
    "@pytest.mark.parametrize('x', [(1,)] * 10**9)\ndef test_a(x): assert f(x) == 1",
    "assert f(1) == 2 ** 10 ** 10",
]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(CODE),
    st.lists(st.one_of(st.sampled_from(CODE), st.integers(), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.lists(st.fixed_dictionaries({"function_name": st.one_of(st.sampled_from(["f", "g", ""]), st.integers())}), max_size=2),
)  # fmt: skip
COLUMNS = {
    KodCode: ["question_id", "question", "solution", "test", "test_code", "test_info", "gpt_difficulty", "style"],
    Mbpp: ["task_id", "text", "code", "test_list", "test_setup_code", "challenge_test_list"],
    evalplus: ["task_id", "prompt", "canonical_solution", "entry_point", "test", "assertion", "plus_input"],
    MappedRows: [
        "id",
        "question",
        "reference",
        "tests",
        "extra_tests",
        "test_code",
        "entry_point",
        "source",
        "license",
        "meta",
    ],
}
CORRECT = "def f(x):\n    return x"
WHOLE = {
    KodCode: {
        "question_id": "1",
        "question": "Say x.",
        "solution": CORRECT,
        "test": "def test_a():\n    assert f(1) == 1",
    },
    Mbpp: {"task_id": 1, "text": "Say x.", "code": CORRECT, "test_list": ["assert f(1) == 1"]},
    evalplus: {
        "task_id": "HumanEval/1",
        "prompt": 'def f(x):\n    """Say x."""\n',
        "canonical_solution": "    return x",
        "entry_point": "f",
        "test": "def check(candidate):\n    assert candidate(1) == 1",
    },
    MappedRows: {"id": "1", "question": "Say x.", "reference": CORRECT, "tests": ["assert f(1) == 1"]},
}


def make(kind, path):
    path.write_text(json.dumps(dict.fromkeys(COLUMNS[kind])) + "\n")
    return kind(FileRows(path) if kind is MappedRows else path)


@pytest.mark.parametrize("kind", COLUMNS, ids=lambda kind: kind.__name__)
def test_wild_rows(kind, tmp_path_factory):
    source = make(kind, tmp_path_factory.mktemp("wild") / "rows.jsonl")
    stages = Stages.__new__(Stages)
    stages.source = source

    @given(st.fixed_dictionaries({name: st.one_of(st.sampled_from(CODE), VALUES) for name in COLUMNS[kind]}))
    @settings(max_examples=150, deadline=None)
    def check(row):
        line = stages._converted("somewhere:1", row)
        assert ("problem" in line) != bool(line.get("reason"))
        json.dumps(line).encode()

    check()


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_one_wild_column_in_a_whole_row(kind, tmp_path_factory):
    """What the checks of other columns would hide."""
    source = make(kind, tmp_path_factory.mktemp("wild") / "rows.jsonl")
    stages = Stages.__new__(Stages)
    stages.source = source
    assert "problem" in stages._converted("somewhere:1", WHOLE[kind])

    @given(st.sampled_from(COLUMNS[kind]), VALUES)
    @example("entry_point", "\\")
    @settings(max_examples=150, deadline=None)
    def check(column, value):
        line = stages._converted("somewhere:1", WHOLE[kind] | {column: value})
        assert ("problem" in line) != bool(line.get("reason"))
        json.dumps(line).encode()

    check()
