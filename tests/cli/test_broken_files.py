"""Every command on files, folders and arguments that are broken in every way: a named error and a documented exit code.

The cases are made from what valid inputs look like. Programs are not run: what is read is in question here.
"""

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.errors import UserError
from codea1_cli.sandbox.base import ProgramRun
from codea1_cli.tiny import model_path
from tests.cli.fake_run import PROBLEMS, make_run
from tests.evals.evalplus.conftest import TASKS

CODES = {0, 1, 2, 3, 4}
WRONG = [None, True, -1, 1e308, 10**400, "", "\ud800", [], {}, [[1]], {"a": 1}, "x\x00y"]


class NoPrograms:
    """A sandbox that runs nothing: every answer is unscored."""

    layers: dict[str, str] = {}  # noqa: RUF012
    workers = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def close(self):
        return None

    def slowest(self):
        return 0.0

    def run(self, program, entry, calls, limits, hash_seed=0):
        return ProgramRun.unscored(len(calls), "not here")


def broken_bytes(valid: bytes) -> Iterator[tuple[str, bytes]]:
    """Files that were once `valid`."""
    text = valid.decode("utf-8", "replace")
    yield "empty", b""
    yield "blank", b" \n\t\n\r\n"
    yield "cut", valid[: len(valid) // 2]
    yield "cut by one", valid.rstrip()[:-1]
    yield "binary", bytes(range(256)) * 8
    yield "zeros", bytes(4096)
    yield "latin-1", b"\xe9\xff" + valid + b"\xe9"
    yield "utf-16", text.encode("utf-16")
    yield "cut utf-16", text.encode("utf-16")[:-1]
    yield "utf-32", text.encode("utf-32")
    yield "byte order mark", b"\xef\xbb\xbf" + valid
    yield "two byte order marks", b"\xef\xbb\xbf" * 2 + valid
    yield "windows", valid.replace(b"\n", b"\r\n")
    yield "gzip", gzip.compress(valid)
    yield "cut gzip", gzip.compress(valid * 20)[:-9]
    yield "wrong gzip", b"\x1f\x8b" + valid
    yield "flipped gzip", gzip.compress(valid)[:12] + b"\xff\xff\xff" + gzip.compress(valid)[15:]
    yield "lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n"
    yield "zip", b"PK\x03\x04" + valid
    yield "parquet in name", b"PAR1" + valid + b"PAR1"
    yield "html", b"<!DOCTYPE html><html><body>404</body></html>"
    yield "deep", b"[" * 100_000
    yield "deep objects", b'{"a":' * 50_000
    yield "long number", b'{"id": ' + b"9" * 6000 + b"}"
    yield "nan", b'{"id": NaN}'
    yield "list", b"[1, 2]"
    yield "list of lists", b"[[1], [2]]"
    yield "text", b'"text"'
    yield "null", b"null"
    yield "empty list", b"[]"
    yield "empty object", b"{}"
    yield "surrogate", b'{"id": "\\ud800", "task_id": "\\udfff"}'
    yield "python", b"def f(:\n  pass"
    yield "coding cookie", b"# -*- coding: nothing -*-\n" + valid
    yield "yaml", b"a: [1\nb: &x *y"
    yield "twice", valid + valid


def broken_rows(row: dict) -> Iterator[tuple[str, bytes]]:
    """A row with each field left out, and with each field of a wrong type."""
    for name in row:
        yield f"without {name}", json.dumps({key: value for key, value in row.items() if key != name}).encode()
        for value in WRONG:
            yield f"{name}={str(value)[:10]!r}", json.dumps({**row, name: value}).encode()
    text = json.dumps(row)
    yield "a key twice", (text[:-1] + ", " + text[1:]).encode()


def places(folder: Path) -> Iterator[tuple[str, Path]]:
    """What stands where a file is wanted."""
    (folder / "a folder").mkdir()
    yield "folder", folder / "a folder"
    yield "missing", folder / "missing" / "file"
    yield "device", Path("/dev/zero")
    yield "nothing", Path("/dev/null")
    (folder / "loop").symlink_to("loop")
    yield "loop", folder / "loop"
    yield "long", folder / ("x" * 300)
    yield "below a file", Path(__file__) / "x"
    yield "nul", Path("a\x00b")
    yield "tilde", Path("~nobody-here/x")
    yield "pipe", pipe_with(b"")


def pipe_with(content: bytes) -> Path:
    """What a shell's `<(...)` is replaced by."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return Path(f"/dev/fd/{reading}")


@pytest.fixture
def codea1(tmp_path, monkeypatch, capfd):
    """Calls a command line; gives what is wrong with how it ended, None when nothing is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEA1_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CODEA1_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for place in ("make_local", "make_sandbox"):
        monkeypatch.setattr(f"codea1_cli.sandbox.make.{place}", lambda *_, **__: NoPrograms())

    def scored(*_: object) -> None:
        raise UserError("read")

    monkeypatch.setattr("codea1_cli.evals.scoring.score_samples", scored)

    def call(*words: object) -> str | None:
        capfd.readouterr()
        code = run_app(app, [str(word) for word in words])
        out, err = capfd.readouterr()
        said = out + err
        if (
            code in CODES
            and "unexpected " not in said.replace("unexpected end of data", "")
            and "Traceback" not in said
        ):
            return None
        return f"{code}: {said.strip()[-300:]}"

    return call


def told(wrong: dict[str, str]) -> str:
    """All that went wrong, a line each."""
    return "\n".join(f"{what}: {' '.join(fault.split())[:400]}" for what, fault in wrong.items())


def try_all(codea1: Callable, folder: Path, name: str, cases: Iterator[tuple[str, bytes]], *words: object) -> None:
    """Each case as the file FILE of the command's words; all that go wrong are told together."""
    wrong, count = {}, 0
    file = folder / name
    for what, content in cases:
        file.write_bytes(content)
        count += 1
        if (fault := codea1(*(file if word == "FILE" else word for word in words))) is not None:
            wrong[what] = fault
    assert not wrong, told(wrong)
    assert count > 5


def try_places(codea1: Callable, folder: Path, *words: object) -> None:
    """Each odd place as the file FILE of the command's words."""
    wrong = {what: codea1(*(path if word == "FILE" else word for word in words)) for what, path in places(folder)}
    assert not any(wrong.values()), told({what: fault for what, fault in wrong.items() if fault})


JUDGED = {"id": "a", "reference": "def f(x): return x", "candidate": "def f(x): return x", "entry_point": "f",
          "tests": ["assert f(1) == 1"], "tolerance": 0.1, "time_limit_s": 1, "memory_mb": 64}  # fmt: skip
SAMPLE = {"task_id": "HumanEval/0", "solution": "def add(a, b):\n    return a + b\n"}
SUITE = {"task_id": "double", "asserts": ["assert double(2) == 4"]}
FUNCTION = {"task_id": "1", "code": "def add(a, b):\n    return a + b\n", "func_name": "add", "prompt": "Add.",
            "test_list": ["assert add(1, 2) == 3"]}  # fmt: skip
ROW = {"id": "a", "question": "Double x.", "reference": "def f(x):\n    return 2 * x", "tests": ["assert f(1) == 2"],
       "entry_point": "f", "meta": {"a": 1}}  # fmt: skip
PROBLEM = PROBLEMS[0].model_dump()
OWN = b'def double(x):\n    """Twice."""\n    return 2 * x\n'
CASES = {
    "judge": ("rows.jsonl", JUDGED, ("judge", "FILE")),
    "samples": ("s.jsonl", SAMPLE, ("eval-code", "humaneval", "--samples", "FILE", "--data", "release.jsonl")),
    "sanitise": ("s.jsonl", SAMPLE, ("eval-code", "sanitise", "humaneval", "FILE", "--data", "release.jsonl")),
    "release": ("r.jsonl", TASKS[0], ("eval-code", "humaneval", "--samples", "s.jsonl", "--data", "FILE")),
    "suites": ("s.jsonl", SUITE, ("eval-tests", "own.py", "--suites", "FILE", "--out", "o")),
    "ult": ("u.jsonl", FUNCTION, ("eval-tests", "ult", "--suites", "ult.jsonl", "--data", "FILE", "--out", "o")),
    "jsonl": ("d.jsonl", ROW, ("prepare-data", "FILE", "--out", "o", "--no-verify", "--no-decontaminate")),
    "evalplus": ("e.jsonl", TASKS[0], ("prepare-data", "evalplus", "--data", "FILE", "--out", "o", "--no-verify")),
    "mbpp": ("m.jsonl", {"task_id": 1, "text": "T", "code": "def f(x):\n    return x", "test_list": ["assert f(1) == 1"]},
             ("prepare-data", "mbpp", "--data", "FILE", "--out", "o", "--no-verify", "--no-decontaminate")),
    "problems": ("p.jsonl", PROBLEM, ("train", "--recipe", "tiny", "--dry-run", "data.train=p.jsonl")),
    "plan": ("p.jsonl", PROBLEM, ("plan", "--recipe", "tiny", "data.train=p.jsonl")),
}  # fmt: skip


@pytest.fixture
def inputs(tmp_path):
    (tmp_path / "release.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    (tmp_path / "s.jsonl").write_text(json.dumps(SAMPLE) + "\n")
    (tmp_path / "own.py").write_bytes(OWN)
    (tmp_path / "ult.jsonl").write_text(json.dumps({"task_id": "1", "suite": "assert add(1, 2) == 3"}))
    return tmp_path


@pytest.mark.parametrize("kind", ["judge", "samples", "suites", "jsonl"])
def test_a_few_files_of_rows(kind, codea1, inputs, monkeypatch):
    name, row, words = CASES[kind]
    monkeypatch.setattr("codea1_cli.cli.prepare_data.prepare_shown", fresh(inputs))
    where = inputs / "tried"
    where.mkdir()
    try_all(codea1, where, name, list(broken_bytes((json.dumps(row) + "\n").encode()))[::2], *words)


def test_a_pipe_is_read_or_called_a_pipe(codea1, inputs, capfd):
    row = (json.dumps(JUDGED) + "\n").encode()
    for content in (
        row,
        b"\n" * 100 + row,
        json.dumps([JUDGED]).encode(),
        gzip.compress(row),
        row.decode().encode("utf-16"),
    ):
        assert run_app(app, ["judge", str(pipe_with(content))]) == 3  # the program is not run here, but it was read
        assert "1 unscored" in capfd.readouterr().err
    for words in (
        ("eval-code", "humaneval", "--samples"),
        ("prepare-data", "--out", "o"),
        ("recipes", "show"),
        ("train", "--dry-run", "--recipe"),
    ):
        assert run_app(app, [*words, str(pipe_with(row))]) == 2, words
        assert "it is a pipe" in capfd.readouterr().err


def test_a_folder_of_samples_is_read(codea1, inputs, capfd):
    (inputs / "made" / "HumanEval_0").mkdir(parents=True)
    (inputs / "made" / "HumanEval_0" / "0.py").write_text(str(SAMPLE["solution"]))
    run_app(app, ["eval-code", "humaneval", "--samples", "made", "--data", "release.jsonl"])
    assert "error: read\n" in capfd.readouterr().err


@pytest.mark.corpus
@pytest.mark.parametrize("kind", CASES)
def test_files_of_rows(kind, codea1, inputs, monkeypatch):
    name, row, words = CASES[kind]
    where = inputs / "tried"
    where.mkdir()
    monkeypatch.setattr("codea1_cli.cli.prepare_data.prepare_shown", fresh(inputs))
    words = tuple(word.replace("p.jsonl", str(where / name)) if "data.train" in str(word) else word for word in words)
    valid = (json.dumps(row) + "\n").encode()
    try_all(codea1, where, name, broken_bytes(valid), *words)
    try_all(codea1, where, name, broken_rows(row), *words)
    if "FILE" in words:
        try_places(codea1, where, *words)


def fresh(folder: Path) -> Callable:
    """prepare-data into a folder that no case before has left anything in."""
    from codea1_cli.cli import prepare_data

    plain = prepare_data.prepare_shown

    def run(*arguments: object) -> object:
        shutil.rmtree(folder / "o", ignore_errors=True)
        return plain(*arguments)

    return run


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "valid", "words"),
    [
        ("own.py", OWN, ("eval-tests", "FILE", "--suites", "suites.jsonl", "--out", "o")),
        ("own.py", OWN, ("prepare-data", "FILE", "--out", "o", "--no-verify", "--no-decontaminate")),
        ("d.csv", b"id,question,reference,tests\n1,Q,def f(): return 1,assert f() == 1\n",
         ("prepare-data", "FILE", "--out", "o", "--no-verify", "--no-decontaminate")),
        ("d.parquet", b"PAR1", ("prepare-data", "FILE", "--out", "o", "--no-verify", "--no-decontaminate")),
        ("m.yaml", b"question: question\n", ("prepare-data", "d.jsonl", "--mapping", "FILE", "--out", "o", "--no-verify",
                                            "--no-decontaminate")),
        ("sample.json", b'["1"]', ("eval-tests", "ult", "--suites", "ult.jsonl", "--data", "u.jsonl", "--sample", "FILE",
                                   "--out", "o")),
        ("r.yaml", b"extends: tiny\n", ("recipes", "show", "FILE")),
        ("r.yaml", b"extends: tiny\n", ("recipes", "check", "FILE")),
        ("r.yaml", b"extends: tiny\n", ("plan", "--recipe", "FILE")),
        ("r.yaml", b"extends: tiny\n", ("train", "--recipe", "FILE", "--dry-run")),
        ("r.results.json", b'{"format": "codea1-eval-code-1", "benchmark": "humaneval", "columns": [], "tasks": {}}',
         ("eval-code", "compare", "FILE", "FILE")),
        ("s.jsonl", b"{}", ("eval-code", "compare", "FILE", "FILE")),
    ],
)  # fmt: skip
def test_other_files(name, valid, words, codea1, inputs, monkeypatch):
    (inputs / "suites.jsonl").write_text(json.dumps(SUITE))
    (inputs / "u.jsonl").write_text(json.dumps(FUNCTION))
    (inputs / "d.jsonl").write_text(json.dumps(ROW))
    monkeypatch.setattr("codea1_cli.cli.prepare_data.prepare_shown", fresh(inputs))
    where = inputs / "tried"
    where.mkdir()
    try_all(codea1, where, name, broken_bytes(valid), *words)
    try_places(codea1, where, *words)


RUN_FILES = ("recipe.yaml", "run.json", "metrics.jsonl", "mistakes.sqlite", "best.json", "phases.json", "lock",
             "data/card.json", "evaluation/step-000003-code.json", "trackers/tensorboard.jsonl",
             "checkpoints/step-000003/arena/state.json", "checkpoints/step-000003/code/trainer_state.json",
             "rollouts/step-000001.parquet", "checkpoints/step-000003/code/config.json",
             "checkpoints/step-000003/code/model.safetensors", "checkpoints/step-000003/COMMITTED")  # fmt: skip
RUN_COMMANDS = (
    ("runs", "list"), ("runs", "show", "first", "--steps", "3"), ("runs", "watch", "first", "--json"),
    ("report", "first", "--out", "r.html"), ("compare", "first", "first"), ("mistakes", "list"), ("mistakes", "export"),
    ("mistakes", "inspect", "basic/double it:1"), ("export", "first", "--role", "code", "--to", "exported"),
    ("train", "--run", "first", "--resume", "--dry-run"), ("runs", "prune", "--dry-run"),
    ("eval-tests", "own.py", "--model", "first", "--out", "o"),
)  # fmt: skip


SMALL = {
    "best.json": {"step": 2, "figure": "heldout/pass@1", "value": 0.5},
    "phases.json": {"code[0]": ["sampling", 3, 1.5]},
    "data/card.json": {"source": {"dataset": "a/b"}},
    "trackers/tensorboard.jsonl": {"line": [1, "", 1.5]},
    "evaluation/step-000003-code.json": {"problem_id": "a", "passed": [True], "unscored": 0},
    "checkpoints/step-000003/arena/state.json": {"step": 3, "book": {}, "pool": {}, "late": {}, "flat": {}},
    "checkpoints/step-000003/code/trainer_state.json": {"global_step": 3},
    "checkpoints/step-000003/COMMITTED": {"step": 3, "files": {}},
}  # fmt: skip
"""The small JSON files of a run, or a row of theirs."""


@pytest.mark.corpus
@pytest.mark.parametrize("file", SMALL)
def test_small_files_of_a_run_with_values_of_other_types(file, codea1, inputs):
    """Right JSON, wrong types: each value in turn, and the whole."""
    (inputs / "runs").mkdir()
    place = make_run(inputs / "runs").path / file
    place.parent.mkdir(exist_ok=True)
    row, wrong = SMALL[file], {}
    odd = [None, "3", [], {"a": 1}, -1]
    for words in RUN_COMMANDS:
        for content in [
            *({**row, name: value} for name in row for value in odd[:: 2 if len(row) > 2 else 1]),
            *odd,
            [[1]],
        ]:
            shutil.rmtree(inputs / "exported", ignore_errors=True)
            place.write_text(json.dumps([content] if "evaluation" in file else content))
            if (fault := codea1(*words)) is not None:
                wrong[f"{' '.join(words)}: {content}"] = fault
    assert not wrong, told(wrong)


@pytest.mark.corpus
@pytest.mark.parametrize("file", RUN_FILES)
def test_files_of_a_run(file, codea1, inputs):
    (inputs / "runs").mkdir()
    run = make_run(inputs / "runs")
    place = run.path / file
    place.parent.mkdir(exist_ok=True)
    valid = place.read_bytes() if place.exists() else b'{"step": 1}\n'
    chosen = [case for case in broken_bytes(valid) if case[0] in ("empty", "cut", "binary", "latin-1", "list", "null",
                                                                  "deep", "empty object", "yaml", "zeros")]  # fmt: skip
    wrong = {}
    for words in RUN_COMMANDS:
        for what, content in chosen:
            shutil.rmtree(inputs / "exported", ignore_errors=True)
            place.write_bytes(content)
            if (fault := codea1(*words)) is not None:
                wrong[f"{' '.join(words)}: {what}"] = fault
        place.unlink()
        place.mkdir()
        if (fault := codea1(*words)) is not None:
            wrong[f"{' '.join(words)}: a folder"] = fault
        place.rmdir()
    assert not wrong, told(wrong)


@pytest.mark.corpus
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_model_folders(file, codea1, inputs):
    whole = model_path()
    words = ("eval-code", "humaneval", "--model", "m", "--data", "release.jsonl", "--sample-only", "--limit", "1",
             "--max-new-tokens", "1", "--out", "out.jsonl")  # fmt: skip
    wrong = {}
    for what, content in broken_bytes((whole / file).read_bytes()):
        shutil.rmtree(inputs / "m", ignore_errors=True)
        (inputs / "m").mkdir()
        for part in whole.iterdir():
            (inputs / "m" / part.name).symlink_to(part)
        (inputs / "m" / file).unlink()
        (inputs / "m" / file).write_bytes(content)
        for left in inputs.glob("*out.*"):
            left.unlink()
        if (fault := codea1(*words)) is not None:
            wrong[what] = fault
    assert not wrong, told(wrong)


NUMBERS = ("", "x", "-1", "0", "1e9", "nan", "inf", "9" * 400, "1.5", "٣")
ARGUMENTS = [
    *(("judge", "rows.jsonl", option, number) for number in NUMBERS for option in ("--workers", "--time-limit", "--memory-mb", "--tolerance")),
    *(("eval-code", "humaneval", "--samples", "s.jsonl", "--data", "release.jsonl", option, number)
      for number in NUMBERS for option in ("--limit", "--workers", "--fail-under")),
    *(("eval-tests", "own.py", "--suites", "suites.jsonl", "--out", "o", option, number)
      for number in NUMBERS for option in ("--limit", "--k", "--test-seconds", "--mutant-seconds", "--memory-mb", "--workers")),
    *(("prepare-data", "d.jsonl", "--out", "o", "--no-verify", "--no-decontaminate", option, number)
      for number in NUMBERS for option in ("--limit", "--min-tests", "--val", "--seed", "--keep", "--threshold", "--slow")),
    *(("plan", "--recipe", "tiny", f"{key}={number}")
      for number in NUMBERS for key in ("train.max_steps", "game.n_code", "train.learning_rate", "seed", "model")),
    *((*words, odd) for odd in ("", " ", "\x00", "../..", "-", "é" * 300, "a\nb", "~x", "http://x/y.jsonl", "a/b/c/d")
      for words in (("runs", "show"), ("recipes", "show"), ("export", "--role", "code", "--to", "o"), ("eval-tests",), ("judge",),
                    ("prepare-data", "--out", "o"), ("mistakes", "inspect"), ("eval-tests", "compare", "o"),
                    ("eval-tests", "own.py", "--model"), ("eval-code", "humaneval", "--data", "release.jsonl", "--model"),
                    ("eval-code", "compare", "s.jsonl"), ("train", "--dry-run", "--recipe"), ("plan", "--recipe"),
                    ("runs", "list", "--runs"), ("prepare-data", "d.jsonl", "--no-verify", "--no-decontaminate", "--out"))),
]  # fmt: skip


@pytest.mark.corpus
def test_arguments(codea1, inputs):
    (inputs / "suites.jsonl").write_text(json.dumps(SUITE))
    (inputs / "d.jsonl").write_text(json.dumps(ROW))
    (inputs / "rows.jsonl").write_text(json.dumps(JUDGED))
    wrong = {}
    for words in ARGUMENTS:
        shutil.rmtree(inputs / "o", ignore_errors=True)
        if (fault := codea1(*words)) is not None:
            wrong[" ".join(words)[:120]] = fault
    assert not wrong, told(wrong)
    assert len(ARGUMENTS) > 150
