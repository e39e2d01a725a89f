"""The layers: probed, named, required, and what is left when a host grants few of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import codea1_cli
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import (
    LAYERS,
    AnswerKind,
    Limits,
    demand_layers,
    layer_report,
    layer_warning,
    missing_layers,
)
from codea1_cli.sandbox.local import LocalSandbox
from tests.sandbox.shared import QUICK, orphans, soon, verdicts

NAMESPACES = ["user_namespace", "pid_namespace", "net_namespace", "ipc_namespace", "mount_namespace"]
SOURCE = Path(codea1_cli.__file__).parents[1]
PROGRAMS = {
    "right": ("def f(x): return x + 1", "passed"),
    "state": ("n = []\ndef f(x):\n    n.append(x)\n    return x + len(n)", "passed"),
    "loop": ("def f(x):\n    while True: pass", "timeout"),
    "crash": ("import ctypes\ndef f(x): ctypes.string_at(0)", "crashed"),
    "memory": ("def f(x): return len(bytearray(1 << 40))", "memory"),
    "parent": ("import os, signal\ndef f(x):\n    try: os.kill(os.getppid(), signal.SIGKILL)\n    except OSError: return x + 1\n    return 0", None),
    "network": ("import socket\ndef f(x):\n    try: socket.create_connection(('127.0.0.1', 9), 1)\n    except ConnectionRefusedError: return 0\n    except OSError: return x + 1", "passed"),
    "file": ("def f(x):\n    try: open('/tmp/codea1_canary/victim.txt', 'w').write('no')\n    except OSError: pass\n    return x + 1", "passed"),
    "removal": ("import os\ndef f(x):\n    try: os.remove('/tmp/codea1_canary/victim.txt')\n    except OSError: pass\n    return x + 1", "passed"),
    "daemon": ("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(47)\n    os._exit(0)\ndef f(x): return x + 1", "passed"),
    "limits": ("import resource\ndef f(x):\n    try: resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))\n    except (ValueError, OSError): return x + 1\n    return 0", "passed"),
}  # fmt: skip


def try_programs(box: LocalSandbox) -> dict[str, str]:
    """What each program's first call came to."""
    judge = Judge(box, limits=QUICK)
    expected = judge.expected("def f(x): return x + 1", "f", ["f(1)"])
    return {name: verdicts(judge.check(program, "f", ["f(1)"], expected))[0] for name, (program, _) in PROGRAMS.items()}


@pytest.mark.usefixtures("canary")
@pytest.mark.parametrize(
    "without",
    [
        [],
        ["user_namespace"],
        NAMESPACES,
        [*NAMESPACES, "landlock"],
        ["mount_namespace"],
        ["landlock", "mount_namespace"],
        ["pid_namespace"],
        ["pids_cgroup", "memory_cgroup"],
    ],
    ids=lambda w: "+".join(w) or "everything",
)
def test_what_is_left_still_holds(without: list[str]) -> None:
    with LocalSandbox(1, without=without) as box:
        assert set(without) <= set(missing_layers(box.layers))
        found = try_programs(box)
    assert {name: found[name] for name, (_, wanted) in PROGRAMS.items() if wanted} == {
        name: wanted for name, (_, wanted) in PROGRAMS.items() if wanted
    }
    assert found["parent"] in ("passed", "failed", "crashed")
    assert not orphans()


THREADS = "import threading, time; [threading.Thread(target=time.sleep, args=(60,)).start() for _ in range({})]; print(1, flush=True)"


@contextlib.contextmanager
def other_work(tasks: int) -> Iterator[None]:
    """So many threads of the user whom the sandbox's programs run as."""
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    python = readable_python() if user else sys.executable
    if python is None:
        pytest.skip("needs a Python that an ordinary user may run")
    code = THREADS.format(tasks)
    with subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, cwd="/", **user) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@pytest.mark.slow
def test_other_work_of_the_same_user_makes_no_verdict() -> None:
    forks = "import os, threading\ndef f(x):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\n    t = threading.Thread()\n    t.start()\n    t.join()\n    return x"
    waits = forks.replace("    if", "    import time; time.sleep(3)\n    if", 1)
    limits = Limits(time_s=20, processes=16)
    with LocalSandbox(2, without=["user_namespace", "pids_cgroup"]) as box:
        with other_work(200):
            assert box.run(forks, "f", ["f(1)"], limits).answers[0].kind is AnswerKind.VALUE
        found: list[AnswerKind] = []
        running = threading.Thread(target=lambda: found.append(box.run(waits, "f", ["f(1)"], limits).answers[0].kind))
        running.start()
        time.sleep(1)
        with other_work(300):
            running.join(3)  # tried once: the second time they are counted from the beginning
            time.sleep(1)
        running.join()
        assert found[0] in (AnswerKind.VALUE, AnswerKind.UNSCORED)


def test_a_required_layer_that_is_missing_is_an_error_that_names_it() -> None:
    with pytest.raises(EnvironmentFault, match="landlock") as caught:
        LocalSandbox(1, require=["landlock", "rlimits"], without=["landlock"])
    assert caught.value.exit_code == 3
    assert "rlimits" not in caught.value.what


def test_an_unknown_layer_is_a_usage_error_with_a_suggestion() -> None:
    with pytest.raises(UserError, match="seccmp") as caught:
        LocalSandbox(1, require=["seccmp"])
    assert "seccomp" in str(caught.value.hint)


def test_the_report_names_every_layer_and_the_warning_only_the_missing() -> None:
    zygote = {name: "" for name in LAYERS if not name.endswith("cgroup")} | {"landlock": "Function not implemented"}
    layers = layer_report(zygote, ["pids"], frozenset())
    assert list(layers) == list(LAYERS)
    assert missing_layers(layers) == ["landlock", "memory_cgroup"]
    assert "Function not implemented" in layer_warning(layers)
    demand_layers(layers, ["seccomp"])
    with pytest.raises(EnvironmentFault):
        demand_layers(layers, ["all"])


def test_an_interpreter_that_is_none_is_an_environment_error() -> None:
    for python in ("/nonexistent/python", "/bin/true"):
        with pytest.raises(EnvironmentFault, match=python):
            LocalSandbox(1, python=python)


def readable_python() -> str | None:
    """A Python that any user may run."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        check = [
            path,
            "-c",
            "import sys, enum; raise SystemExit(sys.version_info < (3, 11) or not hasattr(enum, 'StrEnum'))",
        ]
        try:
            if (
                subprocess.run(check, user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True).returncode
                == 0
            ):
                return path
        except OSError:
            continue
    return None


@pytest.mark.usefixtures("canary")
def test_as_an_ordinary_user() -> None:
    python = readable_python() if os.geteuid() == 0 else None
    if python is None:
        pytest.skip("needs root to become an ordinary user, and a Python that this user may run")
    script = (
        f"import sys, json\nsys.path[:0] = [{str(SOURCE)!r}]\n"
        "from codea1_cli.sandbox.local import LocalSandbox\nfrom codea1_cli.judging.judge import Judge\n"
        "from codea1_cli.sandbox.base import Limits\n"
        f"programs = { {k: v[0] for k, v in PROGRAMS.items()}!r}\n"
        "box = LocalSandbox(1)\njudge = Judge(box, limits=Limits(time_s=2.0, load_s=10.0, memory_mb=512, processes=32))\n"
        "expected = judge.expected('def f(x): return x + 1', 'f', ['f(1)'])\n"
        "print(json.dumps([box.layers, box.hello['user'], {k: judge.check(p, 'f', ['f(1)'], expected)"
        ".verdicts['f(1)'].verdict for k, p in programs.items()}]))\nbox.close()\n"
    )
    done = subprocess.run(
        [python, "-c", script], user=65534, group=65534, extra_groups=[], cwd="/", env={"TMPDIR": "/tmp"},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    layers, user, found = json.loads(done.stdout)
    assert user == 65534
    assert not {"rlimits", "no_new_privs"} & set(missing_layers(layers))
    assert {name: found[name] for name, (_, wanted) in PROGRAMS.items() if wanted} == {
        name: wanted for name, (_, wanted) in PROGRAMS.items() if wanted
    }


@pytest.mark.parametrize("without", [[], ["pid_namespace"]], ids=["pid namespace", "no pid namespace"])
def test_a_killed_parent_leaves_nothing(without: list[str]) -> None:
    script = (
        "import sys, threading, time\nfrom codea1_cli.sandbox.local import LocalSandbox\n"
        "from codea1_cli.sandbox.base import Limits\n"
        f"box = LocalSandbox(2, without={without!r})\n"
        "loop = 'import os, time\\nif os.fork() == 0: time.sleep(99)\\ndef f():\\n    while True: pass'\n"
        "for _ in range(2): threading.Thread(target=box.run, args=(loop, 'f', ['f()'], Limits(time_s=600))).start()\n"
        "while len(box.pids()) < 2: time.sleep(0.1)\nprint(*box.pids(), flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    zygotes = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(zygotes) == 2
    started: list[int] = []

    def both_work() -> bool:
        started[:] = [int(p) for z in zygotes for p in Path(f"/proc/{z}/task/{z}/children").read_text().split()]
        return len(started) >= 2

    assert soon(both_work)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in [*zygotes, *started]))
    assert not orphans()
