"""The environment of BigCodeBench's libraries: made by one command, found by itself; and what is said without it."""

import json
import shutil
import subprocess
import sys
from functools import partial

import pytest
from typer.testing import CliRunner

from codea1_cli.cli import app
from codea1_cli.errors import EnvironmentFault
from codea1_cli.evals.benchmark import ScoreOptions
from codea1_cli.evals.bigcodebench import BigCodeBenchmark, environment
from codea1_cli.evals.bigcodebench.environment import is_ready, plan_environment, python_for
from tests.cli.conftest import call  # noqa: F401  # the fixture
from tests.evals.bigcodebench.cases import row
from tests.hub import package_index, wheel


def uv_that(tmp_path, status):
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\nexit {status}\n")
    uv.chmod(0o755)
    return str(uv)


@pytest.fixture
def pyenv(tmp_path, monkeypatch):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    python = tmp_path / "pyenv" / "versions" / "3.10.13" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEA1_CACHE", str(tmp_path / "a cache"))
    return tmp_path / "a cache"


def with_tools(monkeypatch, **there):
    monkeypatch.setattr(environment.shutil, "which", there.get)


def test_pyenvs_is_taken_where_uv_finds_none(tmp_path, pyenv, monkeypatch):
    with_tools(monkeypatch, uv=uv_that(tmp_path, 1))
    assert plan_environment().base == str(pyenv)
    assert plan_environment(wish="3.9").base == "3.9"  # uv is asked to bring one


def test_uv_comes_first(tmp_path, pyenv, monkeypatch):
    with_tools(monkeypatch, uv=uv_that(tmp_path, 0))
    assert plan_environment().base == "3.10"


def test_without_uv_an_interpreter_that_is_there_is_taken(pyenv, monkeypatch):
    with_tools(monkeypatch)
    assert (plan_environment().tool, plan_environment().base) == ("pip", str(pyenv))
    with pytest.raises(EnvironmentFault, match=r"neither uv nor Python 3\.9") as fault:
        plan_environment(wish="3.9")
    assert "--python PATH" in fault.value.hint


def test_a_dry_run_says_what_is_made_and_where(call, cache):  # noqa: F811
    told = call(app, "eval-code", "setup", "bigcodebench", "--dry-run")
    assert told.code == 0
    assert "168 libraries, 3 GB" in told.err
    assert str(cache / "bigcodebench") in told.err
    assert not cache.exists()
    assert call(app, "eval-code", "setup", "humaneval").code == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--python", "nonsense"), "--python nonsense is neither a version of Python 3 nor an interpreter"),
        (("--python", "2.7"), "--python 2.7 is neither"),
        (("--python", "/bin/echo"), "--python /bin/echo is neither"),
        (("--python", "3.99"), "--python 3.99: uv knows no such version"),
        (("--to", "{full}"), "full holds other files"),
        (("--to", "/proc/new"), "cannot write /proc/new"),
    ],
)
@pytest.mark.parametrize("more", [("--dry-run",), ()])
def test_a_python_that_is_none_and_a_place_in_use_are_refused_by_a_dry_run_too(
    call,  # noqa: F811
    cache,
    tmp_path,
    monkeypatch,
    words,
    says,
    more,
):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\n[ "$2" = list ]\n')
    uv.chmod(0o755)
    with_tools(monkeypatch, uv=str(uv))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    told = call(
        app, "eval-code", "setup", "bigcodebench", *(word.format(full=tmp_path / "full") for word in words), *more
    )
    assert told.code in (2, 3)
    assert says in told.err
    assert not cache.exists()


def test_a_step_that_fails_is_named_and_nothing_is_found(call, cache, tmp_path, monkeypatch):  # noqa: F811
    with_tools(monkeypatch, uv=uv_that(tmp_path, 2))
    told = call(app, "eval-code", "setup", "bigcodebench", "--python", "3.10")
    assert told.code == 3
    assert "ended with 2" in told.err
    assert "--python PATH" in told.err
    assert python_for(None) == sys.executable


@pytest.mark.parametrize("tool", ["uv", pytest.param("pip", marks=pytest.mark.slow)])
def test_it_is_made_from_an_index_and_found_by_itself(cache, tmp_path, monkeypatch, tool):
    """A folder of wheels stands in for the index; two libraries are in it."""
    if tool == "uv" and not shutil.which("uv"):
        pytest.skip("uv is not installed")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "matplotlib", {"matplotlib/__init__.py": "", "matplotlib/font_manager.py": ""})
    wheel(wheels, "no_such_library_at_all", {"no_such_library_at_all.py": "one = 1\n"})
    listed = tmp_path / "requirements.txt"
    listed.write_text("matplotlib==1.0\nno_such_library_at_all==1.0\n")
    monkeypatch.setattr(environment, "REQUIREMENTS", listed)
    for name, value in package_index(wheels).items():
        monkeypatch.setenv(name, value)
    if tool == "pip":
        which = shutil.which
        monkeypatch.setattr(environment.shutil, "which", lambda name: None if name == "uv" else which(name))
    told = CliRunner().invoke(app, ["eval-code", "setup", "bigcodebench", "--python", sys.executable])
    assert told.exit_code == 0, told.output
    python = str(cache / "bigcodebench" / "bin" / "python")
    assert is_ready(cache / "bigcodebench")
    assert python_for(None) == python
    look = "import no_such_library_at_all as n; print(n.one)"
    assert subprocess.run([python, "-c", look], capture_output=True, check=True).stdout == b"1\n"
    listed.write_text("matplotlib==1.0\n")  # another release of codea1 lists others
    assert python_for(None) == sys.executable


def test_what_is_missing_is_counted_by_name(call, cache, tmp_path, monkeypatch):  # noqa: F811
    """Before anything runs, from the tasks' own lists, and after the references, from what they lacked."""
    cold = partial(environment.open_sandbox, warm=())
    monkeypatch.setattr("codea1_cli.evals.bigcodebench.open_sandbox", cold)
    rows = [
        row(0),
        row(1, libs="['no_such_library_at_all', 'os']", canonical_solution="    import no_such_library_at_all.part"),
        row(2, libs="['no_such_library_at_all']", canonical_solution="    import no_such_library_at_all"),
    ]
    data = tmp_path / "tasks.jsonl"
    data.write_text("".join(json.dumps(one) + "\n" for one in rows))
    samples = tmp_path / "samples.jsonl"
    good = "def task_func(number):\n    return number + 1"
    samples.write_text("".join(json.dumps({"task_id": one["task_id"], "solution": good}) + "\n" for one in rows))
    told = call(app, "eval-code", "bigcodebench", "--data", data, "--samples", samples, "--workers", 1)
    assert told.code == 0, told.err
    assert told.err.count("no_such_library_at_all 2") == 2
    assert told.err.count("`codea1 eval-code setup bigcodebench`") == 2
    result = json.loads((tmp_path / "samples.results.json").read_text())
    assert result["references"]["lacking"] == {"no_such_library_at_all": 2}
    assert result["figures"]["tests"]["tasks"] == 1


def test_of_a_service_nothing_is_said_before():
    made = BigCodeBenchmark()
    assert made.missing([], ScoreOptions(sandbox="fusion", endpoint="http://localhost:1")) == {}
