"""The benchmark's files, suites files, and a user's own file."""

import json
from dataclasses import replace

import pytest

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.evals.test_generation import fixed_sample, functions_of_file, load_ult
from codea1_cli.evals.test_generation.sampling import read_suites
from tests.evals.test_generation.hand_made import ADD, SIGN, function

ROWS = [
    {"task_id": "1", "code": ADD, "func_name": "add", "prompt": "Adds.", "test_list": ["assert add(1, 2) == 3"]},
    {"task_id": "2", "code": "import math\n" + SIGN, "prompt": "Sign."},
]


@pytest.mark.parametrize("lines", [False, True])
def test_a_json_list_and_json_lines(tmp_path, lines):
    file = tmp_path / "ULT.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)) if lines else json.dumps(ROWS))
    first, second = load_ult(tmp_path)
    assert (first.id, first.name, first.calls) == ("1", "add", ("assert add(1, 2) == 3",))
    assert (second.name, second.row) == ("sign", 1)
    assert first.problem.declaration == "def add(a, b):"
    assert load_ult(file)[0] == first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "data.json:1: not JSON"),
        ('[{"task_id": "1"}]', "data.json:1: lacks the field code"),
        ('["x"]', "data.json:1: a list, not an object"),
        (json.dumps([ROWS[0], ROWS[0]]), "appears twice"),
    ],
)
def test_broken_data_is_named(tmp_path, text, said):
    file = tmp_path / "data.json"
    file.write_text(text)
    with pytest.raises(UserError, match=said):
        load_ult(file)


def test_no_data_says_the_way_out(tmp_path, monkeypatch):
    with pytest.raises(EnvironmentFault, match="no file of ULT is here") as caught:
        load_ult(None)
    assert "--data" in str(caught.value.hint)
    with pytest.raises(UserError, match="no ULT below"):
        load_ult(tmp_path)


@pytest.mark.shared
def test_the_shared_functions(shared, monkeypatch):
    monkeypatch.setenv("CODEA1_BENCHMARKS", str(shared / "data" / "bench"))
    functions = load_ult(None)
    assert len(functions) == 200
    assert len(fixed_sample(functions)) == 20


def test_the_sample_is_fixed(tmp_path):
    functions = [function(f"def f{n}(x):\n    return x\n") for n in range(30)]
    chosen = fixed_sample(functions)
    assert len(chosen) == 3
    assert fixed_sample(list(reversed(functions))) == chosen
    assert len(fixed_sample(functions[:2])) == 1
    file = tmp_path / "sample.json"
    file.write_text('["f1", "task_0", "f99"]')
    numbered = [replace(f, row=row) for row, f in enumerate([function(ADD), *functions])]
    assert fixed_sample(numbered, file) == {"add", "f1"}
    file.write_text('["nobody"]')
    with pytest.raises(UserError, match="names no function"):
        fixed_sample(functions, file)


def test_names_that_the_judge_has_to_be_given():
    text = "def f(x: List[int]):\n    return math.pi, re, np.e\n"
    head = function(text).standalone.splitlines()[:-3]
    assert sorted(function(text).standalone.splitlines()[:4]) == [
        "from typing import List",
        "import math",
        "import numpy as np",
        "import re",
    ]
    assert head
    assert function("import re\ndef f(x):\n    return re\n").standalone.count("import re") == 1


def test_the_three_kinds_of_rows(tmp_path):
    file = tmp_path / "suites.jsonl"
    rows = [
        {"task_id": 1, "suite": "x = 1\nassert f(x) == 2\nassert f(2) == 3"},
        {"task_id": "2", "asserts": ["assert f(1) == 2", None, "nonsense"], "by": "me"},
        {"task_id": "3", "replies": ["```python\nassert f(1)\nassert f(2)\n```", "Sorry."]},
    ]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    found = read_suites(file)
    assert found["1"].tests == ("x = 1\nassert f(x) == 2", "x = 1\nassert f(2) == 3")
    assert found["1"].text == rows[0]["suite"]
    assert found["2"].tests == ("assert f(1) == 2", None, None)
    assert found["3"].tests == ("assert f(1)", None)
    assert found["3"].text == "assert f(1)"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "suites.jsonl:2: not JSON"),
        ("[]", "suites.jsonl:2: a list, not an object"),
        ('{"task_id": "2"}', "it lacks 'suite'"),
        ('{"suite": "x"}', "it lacks 'task_id'"),
        ('{"task_id": "2", "asserts": "assert 1"}', "asserts is not a list"),
        ('{"task_id": "2", "suite": 5}', "suite is not a text"),
        ('{"task_id": "1", "suite": ""}', "a second suite for 1"),
    ],
)
def test_broken_suites_are_named(tmp_path, line, said):
    file = tmp_path / "suites.jsonl"
    file.write_text('{"task_id": "1", "suite": ""}\n' + line)
    with pytest.raises(UserError, match=said):
        read_suites(file)


def test_a_file_without_suites(tmp_path):
    (tmp_path / "s.jsonl").write_text("\n")
    with pytest.raises(UserError, match="holds no suite"):
        read_suites(tmp_path / "s.jsonl")
    with pytest.raises(UserError, match="cannot read"):
        read_suites(tmp_path / "none.jsonl")


def test_functions_of_a_file(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        'import functools\n\n@functools.cache\ndef f(x):\n    """Docs."""\n    return x + 1\n\nclass A: pass\n'
    )
    (found,) = functions_of_file(file)
    assert (found.id, found.description, found.first, found.last) == ("f", "Docs.", 3, 6)
    assert found.shown.startswith("@functools.cache\ndef f")
    file.write_text("x = 1\n")
    with pytest.raises(UserError, match="no function"):
        functions_of_file(file)
    file.write_text("def f(:\n")
    with pytest.raises(UserError, match="does not parse"):
        functions_of_file(file)
