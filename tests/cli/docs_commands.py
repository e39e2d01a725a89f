"""The commands of README and docs as they are typed, and the folder in which a user would type them."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codea1_cli.cli import app
from codea1_cli.evals.bigcodebench.environment import REQUIREMENTS
from codea1_cli.tiny import model_path, problems_path
from tests.e2e.harness import CODEA1, SMALL
from tests.hub import PATIENT, environment, package_index, publish_all, publish_libraries, serving
from tests.models.stand_in_server import completion, stand_in_server

SHOP = Path(__file__).parents[1] / "fixtures" / "shop.py"


@dataclass(frozen=True)
class Typed:
    """What a command's output holds when it did what the text around it says.

    more: words that make it shorter, and change nothing of what is said. put: what stands for its placeholders. plan: it needs
    GPUs, and the plan of the same words is run. instead: what is run in place of one that needs a service, a cluster or hours,
    of the same command.
    """

    says: str
    more: str = ""
    put: dict[str, str] = field(default_factory=dict)
    plan: bool = False
    instead: str = ""

    def words(self, text: str) -> list[str]:
        """What is run where `text` is typed."""
        words = [self.put.get(word, word) for word in shlex.split(self.instead or f"{text} {self.more}")]
        if not self.plan:
            return words
        for option in ("--run", "--runs", "--address"):
            if option in words:
                del words[words.index(option) : words.index(option) + 2]
        return ["plan", *words[1:], "--gpu", "h200"]


FEW = "--limit 2 --max-new-tokens 24"
SHORT = shlex.join(word for word in SMALL if word != "data.heldout=null").replace("max_steps=6", "max_steps=4")
SHORT += " eval.limit=4 eval.n=2 preflight.enabled=false"
PLAN = Typed("GPU", plan=True)
PLAN_SHARED = Typed("GPU", put={"data.train=/shared/train.jsonl": "data.train=problems.jsonl"}, plan=True)
PLAN_TRAIN = Typed("GPU", put={"data.train=train.jsonl": "data.train=problems.jsonl"}, plan=True)
COMMANDS: dict[str, Typed] = {
    # -- README
    "train --recipe tiny": Typed("tests in the Mistake Book", f"--run RUN --max-steps 1 {SHORT} checkpoint.every=1"),
    "train --run RUN --resume": Typed("run RUN goes on from step 1"),
    "train --recipe tiny seed=401": Typed("steps", instead="train --recipe tiny seed=401 --dry-run"),
    "doctor": Typed("sandbox"),
    "runs export RUN OTHER --csv": Typed("code.reward"),
    "compare RUN OTHER": Typed("pass@1"),
    "mistakes list": Typed("Mistake Book of"),
    "mistakes inspect PROBLEM_ID": Typed("live tests", put={"PROBLEM_ID": "{problem}"}),
    "export RUN --role code --to model/": Typed("model"),
    "prepare-data src/mypackage --out mine/": Typed("train --recipe tiny data.train=mine"),
    "plan --recipe 1.5b --gpu h100 --gpus 8": Typed("GiB"),
    "train --recipe 135m": Typed("mbpp", plan=True),
    "eval-code humaneval --model RUN --n 8": Typed("HumanEval+", FEW),
    "eval-tests FILE.py --model RUN": Typed("mutants killed", "--out eval-tests/A"),
    # -- docs, page by page
    "make-pairs builtin:tiny/train --role code --server http://localhost:8000/v1 --samples '$TINY' --n 1 --limit 20 --out pairs/served": Typed(
        "pairs for the Code LLM", instead="make-pairs builtin:tiny/train --role code --limit 4 --out pairs/served"
    ),
    "write-tests FILE.py --server http://localhost:8000/v1 --model NAME": Typed("the server: ", "--n 2 --out more"),
    "prepare-data mbpp --out data/served --server http://localhost:8000/v1 --solve-rate NAME --n 4": Typed(
        "the server: ", "--limit 4 --keep 0:1"
    ),
    "eval-tests FILE.py --server http://localhost:8000/v1 --model NAME": Typed("the server: "),
    "eval-code humaneval --server http://localhost:8000/v1 --model NAME --n 8": Typed("the server: ", FEW),
    "eval-code humaneval --server http://localhost:8000/v1 --model NAME --max-requests 50": Typed("the server: ", FEW),
    "eval-code humaneval --server http://localhost:8000/v1 --model NAME --n 8 --select tests --test-model my-run": Typed(
        "gap closed", FEW
    ),
    "write-tests FILE.py --model builtin:tiny": Typed("killed after", "--n 2"),
    "write-tests FILE.py --model builtin:tiny --find-bugs": Typed("alarm", "--n 2"),
    "write-tests FILE.py --model my-run --suites tests/test_mine.py": Typed("killed before", "--n 2 --out more"),
    "write-tests --problems problems.jsonl --model builtin:tiny --out golden.jsonl --n 2": Typed(
        "stated rightly", "--tests 2 --max-new-tokens 24", put={"problems.jsonl": "few.jsonl"}
    ),
    "train --recipe tiny method=golden-tests data.train=golden.jsonl": Typed("steps", "--dry-run"),
    "write-tests src/mypackage --model my-run": Typed("killed after", "--n 1 --out more"),
    "eval-code humaneval --model builtin:tiny --n 8 --select tests --limit 8": Typed("gap closed", f"{FEW} --suites 1"),
    "eval-code mbpp --model RUN --n 8 --select codet": Typed("by codet", f"{FEW} --suites 1"),
    "eval-code mbpp --model RUN --n 8 --select tests --each": Typed("by tests", f"{FEW} --n 2 --suites 1"),
    "eval-code humaneval --samples FILE --select tests --test-model my-run": Typed("by tests", "--suites 1"),
    "eval-code humaneval --samples FILE --select codet": Typed("chosen by codet"),
    "eval-code setup bigcodebench --dry-run": Typed("3 GB"),
    "eval-code setup bigcodebench": Typed("next: codea1 eval-code bigcodebench"),
    "eval-code bigcodebench": Typed("BigCodeBench", f"{FEW} --n 1"),
    "train --recipe 1.5b data.train=/shared/train.jsonl --runs /shared/runs --address auto": PLAN_SHARED,
    "train --recipe 1.5b data.train=/shared/train.jsonl --run paper --runs /shared/runs --address '$ip:6379'": PLAN_SHARED,
    "train --run paper --runs /shared/runs --resume --address '$ip:6379'": Typed(
        "steps", instead="train --run NAME --resume --dry-run"
    ),
    "prepare-data kodcode --difficulty hard --out data/kodcode-hard": Typed(
        "train --recipe",
        "--limit 30",
        put={"hard": "medium"},  # of which the demo's rows are
    ),
    "prepare-data mbpp --data mbpp.jsonl --out data/mbpp --report": Typed("train --recipe", "--limit 30"),
    "prepare-data mine.csv --map question=prompt --map reference=answer --map tests=checks --out data/mine": Typed(
        "train --recipe"
    ),
    "prepare-data src/mypackage --license MIT --out data/mypackage": Typed("rows kept"),
    "train --recipe 1.5b data.train=data/kodcode-hard data.heldout=data/kodcode-hard/val.jsonl": PLAN,
    "train --recipe 135m data.train=problems.jsonl": PLAN,
    "eval-code humaneval": Typed("HumanEval+", FEW),
    "eval-code mbpp --model MODEL --n 32 --temperature 0.7": Typed("MBPP+", FEW),
    "eval-code humaneval --model RUN --step 40": Typed("HumanEval+", FEW, {"40": "4"}),
    "eval-code humaneval --samples FILE": Typed("HumanEval+"),
    "eval-code compare A B": Typed("B - A"),
    "eval-code sanitise humaneval RAW.jsonl": Typed("1 solution: "),
    "eval-tests ult": Typed("results in", "--limit 1 --max-new-tokens 24 --out eval-tests/fetched"),
    "eval-tests ult --data CLONE --model my-run --step 200": Typed(
        "results in", "--limit 1 --max-new-tokens 24", {"200": "1"}
    ),
    "eval-tests ult --data CLONE --suites suites.jsonl": Typed("results in", "--limit 1"),
    "eval-tests mine.py --model my-run": Typed("mutants killed", "--out eval-tests/B"),
    "eval-tests compare eval-tests/A eval-tests/B": Typed("functions"),
    "eval-tests mine.py": Typed("mutants killed"),
    "plan --recipe 1.5b data.train=problems.jsonl": Typed("GiB"),
    "train --recipe 1.5b data.train=problems.jsonl": PLAN,
    "plan --gpu h200 --mean-completion 2048": Typed("GiB", "--recipe 1.5b"),
    "plan --gpu h200 --mean-prompt 180 --mean-completion 512": Typed("GiB", "--recipe 1.5b"),
    "judge FILE.jsonl '[--json]' '[--workers' 'N]' '[--python' 'PATH]' '[--require' 'LAYER]' '[--sandbox' fusion --endpoint 'URL]'": Typed(
        "passed", instead="judge FILE.jsonl"
    ),
    "train --recipe tiny method=self-play": Typed("steps", "--dry-run"),
    "train --recipe 1.5b method=self-play data.train=problems.jsonl train.equal_budget=true": PLAN,
    "train --recipe tiny method=golden-tests": Typed("steps", "--dry-run"),
    "train --recipe 135m method=golden-tests data.train=train.jsonl game.golden=all": PLAN_TRAIN,
    "train --recipe 135m method=golden-tests data.train=train.jsonl 'data.solve_rate=[0.1, 0.9]'": PLAN_TRAIN,
    "train --recipe 1.5b method=golden-tests": PLAN,
    "train --recipe 0.5b train.max_steps=40 train.tokens_per_micro_batch=16384 sampling.vllm_memory=0.07 eval.every=20 "
    "checkpoint.every=null preflight.enabled=false": PLAN,
    "train --recipe 0.5b train.max_steps=40 train.tokens_per_micro_batch=16384 sampling.vllm_memory=0.1 eval.every=20 "
    "'eval.benchmarks=[humaneval, mbpp]' eval.benchmark_n=8 eval.benchmark_every=40 checkpoint.every=40 judge.workers=16 "
    "sampling.chunk=256 preflight.enabled=false": PLAN,
    "prepare-data problems.jsonl --out data/study --min-tests 3 --val 0.2": Typed("held out"),
    "train --recipe tiny method=sft": Typed("12 pairs", "--dry-run"),
    "make-pairs problems.jsonl --role code --out pairs/code": Typed("with pairs", "--limit 4"),
    "make-pairs problems.jsonl --role test --out pairs/test": Typed("with pairs", "--limit 4"),
    "train --recipe tiny method=sft sft.role=test sft.test=pairs/test/pairs.jsonl": Typed("pairs", "--dry-run"),
    "make-pairs problems.jsonl --role code --out pairs/mine --samples MODEL": Typed(
        "with pairs", "--limit 6 --n 4 --max-new-tokens 64"
    ),
    "make-pairs problems.jsonl --role code --out pairs/run --rollouts RUN": Typed("with pairs", "--limit 4"),
    "train --recipe tiny --tracker tensorboard": Typed("--tracker tensorboard", "--dry-run"),
    "train --run NAME --resume --tracker trackio": Typed("run NAME goes on from step 1", "--max-steps 2"),
    "runs track RUN --tracker tensorboard": Typed("tracker tensorboard: "),
    "runs watch": Typed("step"),
    "runs show RUN --plot curves.png": Typed("curves of"),
    "report RUN --out run.html": Typed("run.html"),
    "report RUN OTHER --out both.html": Typed("both.html"),
    "compare golden code-a1": Typed("pass@1"),
    "compare runs/golden runs/code-a1": Typed("pass@1"),
    "plan --recipe 1.5b": Typed("GiB"),
    "plan --recipe 7b --gpu h200 train.sharding=fsdp2": Typed("GiB"),
    "plan --recipe 1.5b --gpu h100 --gpus 8 --json": Typed('"fits"'),
    "train --dry-run": Typed("steps", "--recipe tiny"),
    "recipes list": Typed("135m"),
    "recipes show tiny": Typed("problems_per_step: 12"),
    "recipes check mine.yaml": Typed("ok     mine.yaml"),
    "train --recipe tiny --dry-run": Typed("steps"),
    "train --recipe tiny game.alpha=0.25 train.max_steps=20 code.max_completion_tokens=96": Typed(
        "20 of 12", "--dry-run"
    ),
    "train --run NAME --resume": Typed("from step 3 on", "--dry-run"),  # RUN is resumed, above
    "train --run NAME --resume train.max_steps=40": Typed("changed from here on: train.max_steps=40", "--max-steps 3"),
    "export RUN --role code --to DIR": Typed("DIR"),
    "export RUN --role code --to DIR --push OWNER/NAME": Typed(
        "me/model", put={"DIR": "PUSHED", "OWNER/NAME": "me/model"}
    ),
    "runs prune --run NAME --whole": Typed("NAME", "--yes"),
    "sandbox check --sandbox fusion --endpoint URL": Typed("right", instead="sandbox check"),
    "prepare-data FOLDER --out mydata": Typed("train --recipe tiny data.train=mydata", put={"FOLDER": "src/mypackage"}),
}


@contextlib.contextmanager
def ground(folder: Path, shared: Path, monkeypatch: Any) -> Iterator[Any]:
    """An empty folder with what the commands name, and what runs one there: it returns what is wrong, or nothing."""
    bench, raw = shared / "data" / "bench", shared / "data" / "raw"
    monkeypatch.chdir(folder)
    for name in ("CODEA1_RUNS", "CODEA1_SHARED", "CODEA1_BENCHMARKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (folder / "src" / "mypackage").mkdir(parents=True)
    (folder / "CLONE").mkdir()
    for source, target in (
        (SHOP, "src/mypackage/shop.py"), (raw / "mbpp.jsonl", "mbpp.jsonl"), (bench / "ult_lite.json", "ult_lite.json"),
        (bench / "ult_lite.json", "CLONE/ult_lite.json"), (problems_path("train"), "problems.jsonl"),
    ):  # fmt: skip
        shutil.copy(source, folder / target)
    (folder / "few.jsonl").write_text("".join(problems_path("train").read_text().splitlines(keepends=True)[:30]))
    shutil.copytree(model_path(), folder / "MODEL")
    functions = SHOP.read_text().split("\n\n\n")
    for name in ("FILE.py", "mine.py"):
        (folder / name).write_text("\n\n\n".join([functions[3], functions[5]]) + "\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_mine.py").write_text(
        "from FILE import mirrored\n\n\ndef test_it():\n    assert mirrored('') == ''\n"
    )
    (folder / "mine.yaml").write_text("extends: tiny\ndata:\n  train: problems.jsonl\n")
    (folder / "mine.csv").write_text(
        "prompt,answer,checks\n"
        + "".join(f'Add {n}.,"def add_{n}(x):\n    return x + {n}",assert add_{n}(1) == {n + 1}\n' for n in range(5))
    )
    sample = {"task_id": "HumanEval/0", "solution": "def has_close_elements(numbers, threshold):\n    return False"}
    for name in ("FILE", "A", "B", "RAW.jsonl"):
        (folder / name).write_text(json.dumps(sample) + "\n")
    row = {"id": "1", "reference": "def f(x): return x", "candidate": "def f(x): return x", "entry_point": "f"}
    (folder / "FILE.jsonl").write_text(json.dumps({**row, "tests": ["assert f(1) == 1"]}) + "\n")
    suite = {
        "task_id": str(json.loads((bench / "ult_lite.json").read_text())[0]["task_id"]),
        "suite": "assert f(1) == 1",
    }
    (folder / "suites.jsonl").write_text(json.dumps(suite) + "\n")
    publish_libraries(folder / "wheels", REQUIREMENTS)
    python = folder / "pyenv" / "versions" / "3.10.99" / "bin" / "python"  # where uv finds no 3.10 on this machine
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    for name, value in {**package_index(folder / "wheels"), "PYENV_ROOT": str(folder / "pyenv")}.items():
        monkeypatch.setenv(name, value)
    with published(folder, shared, monkeypatch), stand_in_server() as server:
        suite = "```python\nassert mirrored('ab') == 'abba'\n```"
        server.answer = lambda body, _: completion(*[suite] * body.get("n", 1))
        yield lambda call, text, one: _run(call, folder, text.replace("http://localhost:8000/v1", server.url), one)


@contextlib.contextmanager
def published(folder: Path, shared: Path, monkeypatch: Any) -> Iterator[None]:
    """The stand-in of the hub, with all that codea1 reads there."""
    from huggingface_hub import close_session, constants

    with serving() as (hub, address):
        for name, value in (environment(address, folder / "caches") | PATIENT).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        hub.token = "hf_mine"
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("codea1_cli.hub._unreachable", {})
        close_session()
        publish_all(hub, shared, 20, monkeypatch)
        yield
    close_session()


def _run(call: Any, folder: Path, text: str, one: Typed) -> str | None:
    words = [word.replace("{problem}", _problem(folder)) for word in one.words(text)]
    began = time.monotonic()
    if words[0] == "train" and "--dry-run" not in words:
        done = subprocess.run([CODEA1, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        code, said = done.returncode, done.stdout + done.stderr
    else:
        called = call(app, *words)
        code, said = called.code, called.out + called.err
    _prepare(folder, text)
    print(f"{time.monotonic() - began:6.1f} s  {text}")
    if code or one.says not in said:
        return f"exit {code}, {one.says!r} is {'' if one.says in said else 'not '}said:\n{said[-1500:]}"
    return None


def _prepare(folder: Path, text: str) -> None:
    """What later commands find: the first run under other names, and results to compare."""
    if text == "train --recipe tiny" and (folder / "runs" / "RUN").is_dir():
        for name in ("NAME", "my-run", "OTHER", "golden", "code-a1"):
            shutil.copytree(folder / "runs" / "RUN", folder / "runs" / name, symlinks=True)
        os.utime(folder / "runs" / "RUN")
    if text == "eval-code humaneval --samples FILE":
        for name in "AB":
            there = json.loads((folder / "FILE.results.json").read_text())
            (folder / f"{name}.results.json").write_text(json.dumps(there))


def _problem(folder: Path) -> str:
    """A problem of the run, as `run.json` names it."""
    info = folder / "runs" / "RUN" / "run.json"
    ids: list[str] = json.loads(info.read_text())["problem_ids"] if info.is_file() else ["none"]
    return ids[0]
