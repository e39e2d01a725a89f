"""`codea1 write-tests` as a user calls it; what a model would write is given."""

import subprocess
import sys

import pytest

from codea1_cli.cli import app, write_tests

FILE = '''\
def sign(x: int) -> int:
    """The sign.

    >>> sign(4)
    1
    """
    if x > 0:
        return 1
    return -1


def show(x):
    print(x)


def lost(x):
    return nowhere(x)


async def later():
    return 1


class Box:
    pass
'''
TESTS = """\
import pytest
from mine import sign


def test_sign():
    assert sign(-3) == -1
    assert sign(0) == 0


def test_it_raises():
    with pytest.raises(TypeError):
        sign("")
"""
REPLIES = {
    "sign": ["assert sign(5) == 1\nassert sign(-3) == 1", "assert sign(5) == 1"],
    "lost": ["assert lost(1) == 1"],
}


@pytest.fixture
def written(tmp_path, monkeypatch, call):
    """Calls the command in a folder with mine.py and test_mine.py; the model's replies are given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "test_mine.py").write_text(TESTS)
    asked = []

    def sampled(functions, *_):
        asked.extend(functions)
        return [REPLIES.get(one.name, []) for one in functions]

    monkeypatch.setattr(write_tests, "_sampled", sampled)
    return lambda *words, target="mine.py": (
        call(app, "write-tests", target, "--model", "builtin:tiny", "--max-new-tokens", 64, *words),
        asked,
    )


def test_tests_are_written_beside_those_that_exist(written, tmp_path):
    done, asked = written("--suites", "test_mine.py", "--limit", 1)
    assert done.code == 0
    assert {one.name: one.calls[-1:] for one in asked} == {"sign": ("assert sign(4) == 1",), "lost": ()}
    assert "fails today: assert sign(0) == 0" in done.out
    assert done.out.count("survives: mine.py:7  sign: if x") == 1
    for name, why in {
        "show": "it returns no value", "later": "a coroutine", "Box": "a class",
        "lost": "none of 1 call makes a test: raised: NameError",
    }.items():  # fmt: skip
        assert f"not tested: {name}: {why}" in done.out
    assert "1 assert of existing tests not read: 1 raises" in done.err
    assert "killed 13 of 16 mutants (10 before); lines 9 of 12 (8), branches 2 of 2 (1)" in done.err
    assert "1 new test, all pass (run by pytest in the sandbox)" in done.err
    text = (tmp_path / "tests" / "test_mine_generated.py").read_text()
    assert text.endswith("    assert sign(5) == 1\n")
    assert (tmp_path / "mine.py").read_text() == FILE
    assert "next: python -m pytest tests/test_mine_generated.py" in done.err


@pytest.mark.slow
def test_what_existing_tests_say_of_any_function_is_told_and_a_folder_of_them_is_read(written, tmp_path):
    """One that fails though another states its call rightly; one that is no comparison, of whichever function."""
    more = "def test_more():\n    assert sign(-3) == 4\n    assert lost(1) is not None\n    assert other(1) is None\n"
    (tmp_path / "suites" / "deep").mkdir(parents=True)
    (tmp_path / "suites" / "test_a.py").write_text(TESTS)
    (tmp_path / "suites" / "deep" / "more_test.py").write_text(f"from mine import lost, sign\n\n\n{more}")
    (tmp_path / "suites" / "conftest.py").write_text("assert sign(9) == 1\n")
    done, _ = written("--suites", "suites")
    assert (done.code, done.out.count("fails today: ")) == (0, 2)
    assert "fails today: assert sign(-3) == 4" in done.out
    assert "2 asserts of existing tests not read: 1 other_comparison, 1 raises" in done.err
    done, _ = written("--suites", "suites", "--find-bugs")
    assert "sign(-3) gives -1; an existing test states 4" in done.out
    (tmp_path / "empty").mkdir()
    done, _ = written("--suites", "empty")
    assert done.code == 2
    assert "empty holds no test" in done.err
    assert "test_*.py or *_test.py in it" in done.err


@pytest.mark.slow
def test_a_second_call_has_nothing_to_add(written, tmp_path):
    first, _ = written("--json")
    [file] = first.data["files"]
    assert (file["written"], file["functions"][0]["killed_after"]) == (2, 13)
    assert [(one["call"], one["votes"], one["asked"]) for one in file["functions"][0]["kept"]] == [
        ("sign(-3)", 0, 1), ("sign(5)", 2, 2),
    ]  # fmt: skip
    text = (tmp_path / "tests" / "test_mine_generated.py").read_text()
    again, _ = written("--json")
    [file] = again.data["files"]
    assert (file["written"], file["functions"][0]["existing"], file["functions"][0]["killed_before"]) == (0, 2, 13)
    assert (tmp_path / "tests" / "test_mine_generated.py").read_text() == text


def test_a_file_of_that_name_that_is_somebody_elses_is_refused(written, tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_mine_generated.py").write_text("assert True\n")
    done, asked = written()
    assert (done.code, done.out, asked) == (2, "", [])
    assert "was not written by this command" in done.err
    assert (tmp_path / "tests" / "test_mine_generated.py").read_text() == "assert True\n"


@pytest.mark.slow
def test_alarms_are_shown_with_their_evidence_and_nothing_is_written(written, tmp_path, monkeypatch):
    """Those that two samples agree on; what one alone says is counted."""
    monkeypatch.setitem(REPLIES, "sign", [*REPLIES["sign"], "assert sign(-3) == 1\nassert sign(-7) == 1"])
    monkeypatch.setitem(REPLIES, "lost", [*REPLIES["lost"], REPLIES["lost"][0] + "\n# once more"])
    done, _ = written("--find-bugs")
    assert done.code == 0
    first, second, third, fourth, *left_out = done.out.splitlines()
    assert first == "mine.py:1  sign(-3) gives -1; 2 of 2 samples state 1"
    assert second.strip() == "0 state what it gives; The sign."
    assert third.startswith("mine.py:16  lost(1) raises NameError: ")
    assert fourth.strip() == "0 state what it gives; no docstring"
    assert (
        "2 alarms on 2 of 2 functions: code or samples may be wrong; --json has 1 more, each of one sample alone"
        in done.err
    )
    data, _ = written("--find-bugs", "--json")
    assert [(one["file"], one["call"], one["votes"], one["against"]) for one in data.data["alarms"]] == [
        ("mine.py", "sign(-3)", 2, 0), ("mine.py", "lost(1)", 2, 0), ("mine.py", "sign(-7)", 1, 0),
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py", "test_mine.py"}
    faults = {"Box": "a class", "later": "a coroutine", "show": "it returns no value"}
    assert len(left_out) == 3
    for name, why in faults.items():
        assert f"not tested: mine.py  {name}: {why}" in done.out
        assert data.data["not_tested"]["mine.py"][name].startswith(why)
    assert (data.data["model"], data.data["functions"]) == ("builtin:tiny", 2)


def test_an_example_that_the_code_fails_is_the_first_alarm(written, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FILE.replace("sign(4)\n    1", "sign(-4)\n    1"))
    monkeypatch.setitem(REPLIES, "sign", ["assert sign(-7) == 1", "assert sign(-7) == 1\nassert sign(-4) == 1"])
    done, _ = written("--find-bugs", "--suites", "test_mine.py")
    shown = done.out.splitlines()
    assert shown[:2] == [
        "mine.py:1  sign(-4) gives -1; the docstring states 1",
        "    stated too by 1 of 1 sample, what it gives by 0; assert sign(-4) == 1",
    ]
    assert shown[2:4] == [
        "mine.py:1  sign(0) gives -1; an existing test states 0",
        "    no sample makes the call; assert sign(0) == 0",
    ]
    assert shown[4] == "mine.py:1  sign(-7) gives -1; 2 of 2 samples state 1"
    data, _ = written("--find-bugs", "--json")
    assert [one["by"] for one in data.data["alarms"]] == ["the docstring", "", ""]


@pytest.mark.slow
def test_a_module_of_the_same_name_in_another_call_has_another_test_file(written, tmp_path, monkeypatch):
    """A test file says what it is of: the second call is refused before a sample, and no call mixes or overwrites."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "util.py").write_text("def sign(x):\n    return 1 if x > 0 else -1\n")
    done, asked = written(target="one/util.py")
    assert done.code == 0
    path = tmp_path / "tests" / "test_util_generated.py"
    text = path.read_text()
    assert text.startswith('"""Tests of ../one/util.py, written by codea1 write-tests; ')
    asked.clear()
    done, _ = written(target="two/util.py")
    assert (done.code, asked) == (2, [])
    assert "error: tests/test_util_generated.py has the tests of one/util.py" in done.err
    assert "hint: another --out for those of two/util.py" in done.err
    assert written("--find-bugs", target="two/util.py")[0].code == 0, "which writes nothing"
    assert written("--out", "more", target="two/util.py")[0].code == 0
    monkeypatch.chdir(tmp_path / "one")
    done, _ = written("--out", "../tests", "--json", target="util.py")
    assert (done.data["files"][0]["written"], path.read_text()) == (0, text), "it finds its own from any folder"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one" / "util.py").rename(tmp_path / "util.py")
    (tmp_path / "util.py").write_text("def lost(x):\n    return 1 if x > 0 else -1\n")
    assert written(target="util.py")[0].code == 0, "a module that has moved"
    assert path.read_text().startswith('"""Tests of ../util.py, written by codea1 write-tests; ')


def test_the_next_line_of_a_link_imports_the_link(written, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "lib" / "impl.py").write_text(FILE)
    (tmp_path / "src" / "linked.py").symlink_to(tmp_path / "lib" / "impl.py")
    done, _ = written(target="src/linked.py")
    assert f"next: PYTHONPATH={tmp_path / 'src'} python -m pytest tests/test_linked_generated.py" in done.err


def test_what_can_be_told_before_sampling_is(written, tmp_path):
    """No folder to write, no coverage.py, a test file without a test, an option without effect."""
    python = tmp_path / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    (tmp_path / "empty.py").write_text("import pytest\n")
    for words, code, said in (
        (("--out", "/sys"), 3, "cannot write /sys"),
        (("--python", python), 3, "the interpreter that runs the tests has no coverage.py"),
        (("--suites", "empty.py"), 2, "empty.py holds no test"),
        (("--find-bugs", "--out", "more"), 2, "--find-bugs writes nothing, so --out would have no effect"),
    ):
        done, asked = written(*words)
        assert (done.code, said in done.err, asked) == (code, True, []), done.err
    done, _ = written(target="empty.py")
    assert "empty.py has no function at its top level\nhint: methods and nested functions are not tested" in done.err


@pytest.mark.slow
def test_samples_that_are_all_the_same_are_told(written, monkeypatch):
    monkeypatch.setitem(REPLIES, "sign", ["assert sign(5) == 1"] * 3)
    done, _ = written("--n", 3, "--temperature", 0)
    assert "the 3 samples of each function are all the same, and count as one: --temperature 1 varies them" in done.err
    assert "count as one: the model is sure" in written("--n", 3)[0].err
    monkeypatch.setitem(REPLIES, "sign", ["assert sign(5) == 1"] * 2 + ["assert sign(6) == 1"])
    assert "all the same" not in written("--n", 3)[0].err


def test_modules_of_one_name_do_not_share_a_test_file(written, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "util.py").write_text(f"def {folder}(x):\n    return x\n")
    done, asked = written(target=".")
    assert (done.code, asked) == (2, [])
    assert "one/util.py and two/util.py are both the module util" in done.err
    (tmp_path / "two" / "__init__.py").write_text("")
    assert written(target=".")[0].code == 0


def test_find_bugs_names_what_it_leaves_out_of_a_folder(written, tmp_path, monkeypatch):
    """A file that does not parse, one that does not load, a function of which the samples say nothing."""
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "needs.py").write_text("import nowhere_to_be_found\n\n\ndef g(x):\n    return x\n")
    (tmp_path / "test_mine.py").unlink()
    monkeypatch.setitem(REPLIES, "lost", ["assert lost(1, 2) == 1"])
    done, _ = written("--find-bugs", target=".")
    assert done.code == 0
    for text in (
        "not tested: broken.py: broken.py:1: does not parse",
        "not tested: needs.py  g: it does not load: ",
        "not tested: mine.py  lost: none of 1 call makes a test: raised: TypeError",
    ):
        assert text in done.out
    assert "on 0 of 1 function: " in done.err


def test_tests_of_a_function_that_is_gone_are_named_and_keep_no_other_from_running(written, tmp_path):
    """Its name leaves the import; its tests stay, as they may be changed by hand."""
    assert written()[0].code == 0
    path = tmp_path / "tests" / "test_mine_generated.py"
    path.write_text(
        path.read_text().replace("import sign", "import lost, sign") + "\n\ndef test_lost():\n    assert lost(1) == 2\n"
    )
    before = path.read_text()
    (tmp_path / "mine.py").write_text(FILE.replace("def lost", "def found").replace("def sign", "def _sign"))
    done, _ = written()
    last = before.count("\n")
    assert (done.code, path.read_text()) == (0, before.replace("from mine import lost, sign", "import mine"))
    hint = "delete these lines, or write its new name"
    assert (
        f"fails today: tests/test_mine_generated.py:{last - 1}-{last}  test_lost: nothing is called lost; {hint}"
        in done.out
    )
    assert "test_mine_generated.py: no import of lost, sign any more, which mine.py does not have" in done.err
    (tmp_path / "mine.py").write_text("X = 1\n")
    done, _ = written()
    assert (done.code, "test_lost: nothing is called lost" in done.out) == (0, True)
    path.write_text(before + "def f(:\n")
    done, _ = written()
    assert (done.code, f"tests/test_mine_generated.py:{last + 1}: does not parse" in done.err) == (2, True)


def test_a_file_that_no_test_can_import_is_named_and_so_is_an_out_that_is_a_file(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-mod.py").write_text(FILE)
    done = call(app, "write-tests", "my-mod.py", "--model", "builtin:tiny")
    assert "a test cannot import my-mod.py: its name is none of a module" in done.out + done.err
    (tmp_path / "bits.py").write_text("def test_bit(x):\n    return x & 1\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    done = call(app, "write-tests", ".", "--model", "builtin:tiny")
    assert (done.code, "not tested: broken.py: broken.py:1: does not parse" in done.out) == (0, True)
    assert "not tested: test_bit: pytest takes a function of that name in a test file for its own" in done.out
    assert call(app, "write-tests", "broken.py", "--model", "builtin:tiny").code == 2
    done = call(app, "write-tests", "my-mod.py", "--out", "my-mod.py")
    assert (done.code, "error: --out my-mod.py is a file\nhint: a folder is wanted" in done.err) == (2, True)
    (tmp_path / "tests").touch()
    done = call(app, "write-tests", "my-mod.py")
    assert (done.code, "error: --out tests is a file\nhint: a folder is wanted" in done.err) == (2, True)
