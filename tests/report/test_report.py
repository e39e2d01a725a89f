"""`codea1 report`: the page of a whole run, of a damaged one, of several; and that texts stay texts."""

import base64
import gzip
import json
import re
import shutil

import pytest

from codea1_cli.cli import app
from codea1_cli.recipe.files import load_recipe, recipe_text
from codea1_cli.report import rollouts
from codea1_cli.report.rollouts import Texts, in_order, spread
from codea1_cli.runs.rollout_files import write_rollouts
from codea1_cli.runs.run_dir import RunDir
from tests.cli.fake_run import WRONG_DOUBLE, make_run, ran, rollout_row

DOUBLE = "basic/double it:1"
HOSTILE = '</script><img src=x onerror="window.hit=1"><script>window.hit=2</script>{{ script }}'


def data_of(page: str):
    found = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


@pytest.fixture
def made(call, tmp_path):
    """Makes a page of runs and returns what it holds, and the page."""

    def make(*words):
        file = tmp_path / "page.html"
        done = call(app, "report", *words, "--out", file, "--force")
        assert done.code == 0, done.err
        page = file.read_text(encoding="utf-8")
        return data_of(page), page, done

    return make


def evaluate(run: RunDir, step: int, solved: int) -> None:
    """An evaluation with its rows and texts; a problem's four solutions, `solved` of which pass."""
    folder = run.path / "evaluation"
    folder.mkdir(exist_ok=True)
    code = [{"problem_id": DOUBLE, "passed": [place < solved for place in range(4)], "unscored": 0}]
    suite = {"asserts": 2, "valid": 2, "correct": 1, "misstated": 1, "validity": 0.5, "unscored": False}
    test = [{"problem_id": DOUBLE, **suite, "exposed": solved > 2}]
    kept = {
        "code": [{"problem_id": DOUBLE, "replies": [f"answer {place} {HOSTILE}" for place in range(4)]}],
        "test": [{"problem_id": DOUBLE, "program": WRONG_DOUBLE, "replies": ["assert double(1) == 3"]}],
    }
    for part, rows in (("code", code), ("test", test)):
        (folder / f"step-{step:06d}-{part}.json").write_text(json.dumps(rows))
        packed = gzip.compress(json.dumps(kept[part]).encode())
        (folder / f"step-{step:06d}-{part}-replies.json.gz").write_bytes(packed)
    figures = {"set": "heldout", "code": {"n": 4, "pass@1": solved / 4, "pass@4": 1.0}, "test": {"exposed": 0.5}}
    run.append_metrics({"step": step, "eval": figures})


@pytest.fixture
def hostile(run) -> RunDir:
    """The run `first` with a step whose texts attack the page, and two evaluations."""
    tests = [
        ran(f"assert double({HOSTILE!r}) == 1", "failed", HOSTILE, HOSTILE)
        | {"valid": True, "reason": "", "stated_correctly": True},
        ran("assert double(2) == 4", "failed", "4", "6") | {"valid": True, "reason": "", "stated_correctly": False},
        ran("assert double(*) == 5", None, "", "") | {"valid": False, "reason": HOSTILE, "stated_correctly": None},
    ]
    attacked = rollout_row(2, DOUBLE, 0, WRONG_DOUBLE, [], [])
    attacked["completion"] = HOSTILE
    written = f"{HOSTILE}\nassert double(1) == 1\nassert double(2) == 5\nassert double(*) == 5"
    attacked["suites"] = [attacked["suites"][0] | {"text": written, "tests": tests, "breaks": ["abcd1234"]}]
    unscored = rollout_row(2, DOUBLE, 1, HOSTILE, [], []) | {"reward": None, "loaded": None}
    broken = rollout_row(2, HOSTILE, 0, "def", [], []) | {"loaded": False, "load_detail": HOSTILE, "suites": []}
    write_rollouts(run.rollout_file(2), [attacked, unscored, broken])
    evaluate(run, 0, 1)
    evaluate(run, 3, 3)
    return run


def test_the_page_holds_the_run(hostile, made):
    data, page, done = made("first")
    (found,) = data["runs"]
    texts = data["texts"]
    assert (found["state"], found["step"], found["total"], found["missing"]) == ("finished", 3, 3, [])
    assert done.out.strip().endswith("page.html")
    assert found["tables"]["steps"]["y"]["code.reward"] == [0.25, 0.5, 0.75]
    assert found["tables"]["heldout"]["low"]["code.pass@1"][0] is not None
    assert found["marks"]["checkpoints"] == [1, 2, 3]
    by_id = {row["id"]: row for row in found["problems"]}
    assert (by_id[DOUBLE]["steps"], by_id[DOUBLE]["tests"], by_id[DOUBLE]["mistakes"]) == ([1, 2, 3], 2, 4)
    own = found["rollouts"][DOUBLE]
    assert [(one["step"], one["index"]) for one in own] == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert texts[own[0]["code"]] == WRONG_DOUBLE
    (suite,) = own[1]["suites"]
    assert (suite["exposes"], suite["alarm"], suite["breaks"]) == (True, True, ["abcd1234"])
    assert [texts[test[0]] for test in suite["tests"]][1] == "assert double(2) == 4"
    assert [test[-1] and texts[test[-1]] for test in suite["tests"]] == [None, "5", None]  # what a wrong one states
    book = found["books"][DOUBLE]
    assert [texts[row[0]] for row in book["live"]] == ["assert double(3) == 6", "assert double(-1) == -2"]
    assert [texts[row[0]] for row in book["retired"]] == ["assert double(0) == 0"]
    assert texts[found["questions"][DOUBLE]["question"]] == "Return twice the number."
    assert found["sets"]["heldout"]["figures"]["pass@1"] == [[0.25], [0.75]]
    answers = found["samples"][DOUBLE]
    assert [(one["step"], one["part"]) for one in answers if one["good"]] == [
        (0, "code"),
        *[(3, "code")] * 3,
        (3, "test"),
    ]
    gain = {row["figure"]: row["gain"]["mean"] for row in data["compare"]["sets"]["heldout"]}
    assert gain["pass@1"] == 0.5
    assert not re.search(r"https?://(?!github.com/leeoniya)", page.partition('id="data"')[0])


def test_texts_of_models_are_data_and_no_markup(hostile, made):
    data, page, _ = made("first")
    assert HOSTILE in data["texts"]
    assert "onerror" not in page
    assert page.count("<script") == 3
    assert re.search(r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-\S+' 'sha256-\S+';", page)
    assert HOSTILE in json.dumps(data["runs"][0]["rollouts"], ensure_ascii=False).replace('\\"', '"')


def damage(run: RunDir, what: str) -> None:
    files = {
        "book": run.mistakes_file,
        "recipe": run.recipe_file,
        "info": run.path / "run.json",
        "metrics": run.metrics_file,
    }
    if what in files:
        file = files[what]
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 3] + b"\xff{[")
    elif what == "rollout":
        run.rollout_file(2).write_bytes(b"PAR1 not")
    elif what == "evaluation":
        (run.path / "evaluation" / "step-000003-code.json").write_text('[{"problem_id"')
    elif what == "rows":
        (run.path / "evaluation" / "step-000003-code.json").write_text("[3, null]")
    elif what == "replies":
        (run.path / "evaluation" / "step-000003-code-replies.json.gz").write_bytes(b"\x1f\x8b\x00")
    elif what == "data":
        (run.path.parent / "problems.jsonl").unlink()
    elif what == "everything":
        for path in run.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (run.path / "rollouts").mkdir()


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("book", "mistakes.sqlite"),
        ("recipe", "recipe.yaml"),
        ("info", "run.json"),
        ("metrics", "unreadable: "),
        ("rollout", "rollouts/step-000002.parquet cannot be read"),
        ("evaluation", "step-000003-code.json"),
        ("rows", "evaluation"),
        ("replies", "step-000003-code-replies.json.gz"),
        ("data", "problems.jsonl"),
        ("everything", "metrics.jsonl is not there"),
    ],
)
def test_what_is_damaged_is_named_and_the_rest_is_there(hostile, made, what, named):
    damage(hostile, what)
    data, _, done = made(hostile.path)
    (found,) = data["runs"]
    assert any(named in line for line in found["missing"]), found["missing"]
    assert named in done.err
    assert "Traceback" not in done.err
    if what not in ("rollout", "everything"):
        assert len(found["rollouts"][DOUBLE]) == 6
    if what == "rollout":
        assert [one["step"] for one in found["rollouts"][DOUBLE]] == [1, 3, 3, 3]
    if what not in ("metrics", "everything"):
        assert found["tables"]["steps"]["x"] == [1, 2, 3]
    if what == "rows":
        assert found["sets"]["heldout"]["steps"] == [0]


def test_a_run_in_progress_is_shown_as_it_is(hostile, made):
    with hostile.locked(), open(hostile.metrics_file, "a") as file:
        file.write('{"step": 4, "ti')
        file.flush()
        data, _, _ = made("first")
    assert data["runs"][0]["state"] == "running"
    assert data["runs"][0]["tables"]["steps"]["x"] == [1, 2, 3]
    assert data["runs"][0]["missing"] == ["metrics.jsonl: unreadable: 1 of 7 lines"]


def test_several_runs_are_compared_and_a_file_that_is_there_stays(hostile, made, call, tmp_path):
    other = make_run(hostile.path.parent, "other", steps=2, total=5)
    evaluate(other, 2, 4)
    data, _, _ = made("first", "other")
    assert [run["arm"] for run in data["runs"]] == ["first", "other"]
    (row,) = [row for row in data["compare"]["sets"]["heldout"] if row["figure"] == "pass@1" and row["run"] == "other"]
    assert row["against"]["mean"] == 0.25
    refused = call(app, "report", "first", "--out", tmp_path / "page.html")
    assert refused.code == 2
    assert "--force" in refused.err
    damage(other, "recipe")
    data, _, _ = made("first", "other")
    assert "recipe.yaml" in data["compare"]["error"]
    assert {row["run"] for row in data["compare"]["sets"]["heldout"]} == {"first", "other"}


def test_runs_over_seeds_come_in_order_and_what_all_lack_is_told_once(run, made):
    folder = run.path.parent / "seeds"
    for seed in (11, 9, 10):
        one = make_run(folder, f"seed-{seed}", steps=1, total=1)
        info = json.loads((one.path / "run.json").read_text())
        (one.path / "run.json").write_text(json.dumps(info | {"seed": seed}))
        one.mistakes_file.unlink()
    data, _, done = made(folder)
    assert [run["name"] for run in data["runs"]] == ["seed-9", "seed-10", "seed-11"]
    (told,) = [line for line in done.err.splitlines() if "Mistake Book" in line]
    assert "seed-9 and 2 more: no Mistake Book" in told


def test_a_run_that_learns_from_pairs_lacks_nothing(hostile, made):
    shutil.rmtree(hostile.path / "rollouts")
    hostile.mistakes_file.unlink()
    text = hostile.recipe_file.read_text()
    hostile.recipe_file.write_text(recipe_text(load_recipe("tiny", ["method=sft"])))
    data, _, _ = made("first")
    assert data["runs"][0]["missing"] == []
    hostile.recipe_file.write_text(text)
    data, _, _ = made("first")
    assert data["runs"][0]["missing"][0] == "rollouts: there are none"


def test_problems_that_are_asked_for_come_first_and_the_page_stays_small(hostile, made, monkeypatch):
    monkeypatch.setattr(rollouts, "packed", lambda data: 10**9)
    data, _, _ = made("first", "--problem", DOUBLE)
    assert list(data["runs"][0]["rollouts"]) == [DOUBLE]
    assert data["runs"][0]["kept"] == {"steps": 3, "problems": 2, "shown": 1}


def test_long_texts_are_cut_and_steps_spread():
    texts = Texts()
    assert texts.number("a" * 5000) == texts.number("a" * 5000) == 0
    assert texts.all[0].endswith("[cut: 1000 more characters]")
    assert spread(range(1, 101), 4) == [1, 34, 67, 100]
    assert spread([1, 2], 4) == [1, 2]
    assert in_order("abc", ["c", "x"])[0] == "c"
    assert in_order("abcdef") == in_order("fedcba")
