"""Exit codes, errors without tracebacks, suggestions, and stdout that holds one JSON document."""

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.cli import console
from codea1_cli.cli.console import printable
from codea1_cli.errors import EnvironmentFault, RunFailed, UserError

FAULTS = {
    "user": (UserError("no [bold] file", hint="write [one]"), 2),
    "environment": (EnvironmentFault("no sandbox", "install one"), 3),
    "failed": (RunFailed("side code[0] died"), 1),
    "bug": (KeyError("x"), 1),
    "full": (OSError(28, "No space left on device", "/somewhere"), 3),
    "interrupt": (KeyboardInterrupt(), 130),
    "abort": (typer.Abort(), 130),
    "below": (typer.Exit(4), 4),
}

app = typer.Typer(no_args_is_help=True)


@app.command()
def fail(kind: str, verbose: console.VerboseOption = False) -> None:
    raise FAULTS[kind][0]


@app.command()
def give(number: int = 0, as_json: console.JsonOption = False) -> None:
    console.warn("beside the data")
    console.emit({"number": number, "nan": float("nan"), "text": "\udc80 é \x1b[31m"})


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_has_its_exit_code_and_no_traceback(call, kind):
    done = call(app, "fail", kind)
    error, code = FAULTS[kind]
    assert done.code == code
    assert done.out == ""
    assert "Traceback" not in done.err
    if kind in {"user", "environment", "failed"}:
        assert done.err.splitlines()[0] == f"error: {error.what}"
        assert done.err.splitlines()[1:] == ([f"hint: {error.hint}"] if error.hint else [])
    elif kind == "bug":
        assert done.err == "error: unexpected KeyError: 'x'\nhint: run with -v for the traceback\n"
    elif kind == "full":
        assert done.err == "error: No space left on device: /somewhere\n"


def test_verbose_shows_the_traceback_and_only_for_its_own_call(call):
    loud = call(app, "fail", "bug", "-v")
    assert "Traceback (most recent call last)" in loud.err
    assert loud.err.rstrip().endswith("error: unexpected KeyError: 'x'")
    assert "Traceback" not in call(app, "fail", "bug").err


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["giv"], "no such command 'giv'", "did you mean give?"),
        (["give", "--nmber", "1"], "no such option: --nmber", "did you mean --number?"),
        (["give", "--number", "many"], "invalid value for '--number'", "see codea1 give --help"),
        (["fail"], "missing argument 'kind'", "see codea1 fail --help"),
    ],
)
def test_wrong_usage_is_one_error_with_a_hint(call, words, error, hint):
    done = call(app, *words)
    assert done.code == 2
    assert done.out == ""
    first, second = done.err.splitlines()
    assert first.startswith(f"error: {error}")
    assert second == f"hint: {hint}"


def test_json_is_alone_on_stdout_and_survives_odd_text(call):
    done = call(app, "give", "--json")
    assert done.data == {"number": 0, "nan": None, "text": "\udc80 é \x1b[31m"}
    assert done.err == "warning: beside the data\n"


@given(st.text())
def test_printable_text_cannot_steer_the_terminal_and_always_encodes(text):
    shown = printable(text)
    shown.encode("utf-8")
    assert all(c.isprintable() or c in "\n\t" for c in shown)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.frozensets(st.integers()),
    max_leaves=8,
)


@given(json_values)
def test_jsonable_gives_strict_json(value):
    json.loads(json.dumps(console.jsonable(value), allow_nan=False))


def test_a_question_nobody_can_answer_is_an_error_that_names_the_flag(monkeypatch):
    assert console.confirm("delete?", yes=True)
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    with pytest.raises(UserError) as caught:
        console.confirm("delete?", yes=False)
    assert caught.value.hint == "add --yes"


def test_a_table_aligns_its_columns_and_shows_what_a_model_wrote_as_plain_text(capsys):
    from rich.console import Console

    rows = [(1, "[bold]\x1b[31m"), (22, console.cell("b", "ok"))]
    shown = console.table("[title]", (">count", "text"), rows)
    Console(width=40).print(shown)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "[title]"
    assert lines[1:] == ["count  text", "1  [bold]\\x1b[31m", "22  b"]
    assert shown.show_header
    assert not console.table(None, (">", "<"), rows).show_header
