"""The real sandbox-fusion server, hostile programs on it, and every outage of it: verdicts are right, or there are none.

Needs the server's archive below CODEA1_SHARED; its first start takes a minute and the package index.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codea1_cli.judging.judge_rows import RowJudge
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.fusion import FusionSandbox
from tests.sandbox.fusion_server import FusionServer, running_server
from tests.sandbox.shared import drilled
from tests.sandbox.test_hostile_cases import LIMITS, complaint, rows_of

# One process: an outage is made of files that all servers share, and a secret is looked for in all of /tmp.
pytestmark = [pytest.mark.shared, pytest.mark.usefixtures("canary"), pytest.mark.xdist_group("fusion-server")]
# What a container usually grants: no namespaces of its own, no control groups.
CONTAINER = (
    "user_namespace", "pid_namespace", "net_namespace", "ipc_namespace", "mount_namespace", "pids_cgroup",
    "memory_cgroup",
)  # fmt: skip
RIGHT = "def f(x):\n    return x + 1  # {n}\n"
WRONG = "def f(x):\n    return [x for x in [x]][0]  # {n}\n"
APART = "kept = []\ndef f(x):\n    kept.append(x)\n    return len(kept) + x  # {n}\n"


@pytest.fixture(scope="module")
def server(shared: Path) -> Iterator[FusionServer]:
    with running_server(shared) as running:
        yield running


@pytest.fixture
def box(server: FusionServer) -> Iterator[FusionSandbox]:
    server.start()
    with FusionSandbox(server.url, 2, patience_s=60.0) as opened:
        yield opened


@pytest.mark.slow
def test_the_hostile_cases_get_the_verdicts_that_they_get_here(shared: Path, box: FusionSandbox) -> None:
    pairs = rows_of(shared)
    reports = RowJudge(box, LIMITS).stream((row for row, _ in pairs), box.workers)
    faults = {
        case["id"]: fault
        for report, (_, case) in zip(reports, pairs, strict=True)
        if (fault := complaint(report, case))
    }
    assert not faults
    assert not box.failures


# -- the secret ------------------------------------------------------------------------------------------------------
_SNOOP = """
import ctypes, glob, os, sys
TEXT = '5ec2e7'
SECRETS = [(TEXT * 11)[:64].encode(), bytes.fromhex((TEXT * 11)[:64])]
OWN = {os.getpid()}
def look(data): return any(secret in data for secret in SECRETS)
def read(path):
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe shall not hold it up
        try: return os.read(number, 1 << 22)
        finally: os.close(number)
    except OSError: return b''
def memory(pid):
    try:
        maps = open(f'/proc/{pid}/maps').read().splitlines()
        with open(f'/proc/{pid}/mem', 'rb', 0) as mem:
            for line in maps:
                low, high = (int(part, 16) for part in line.split()[0].split('-'))
                if 'rw' in line.split()[1] and high - low < 1 << 26:
                    try:
                        mem.seek(low)
                        if look(mem.read(high - low)): return True
                    except (OSError, ValueError, OverflowError): pass
    except OSError: pass
    return False
def f():
    OWN.add(os.getpid())  # a call may have a process of its own
    seen = ['argv or environ'] if look(repr([sys.argv, dict(os.environ)]).encode()) else []
    for number in range(256):
        for how in (lambda: os.pread(number, 1 << 20, 0), lambda: b''):
            try: seen += [f'descriptor {number}'] if look(how()) else []
            except OSError: pass
    for pattern in ('/tmp/*', '/tmp/tmp*/*', '/dev/shm/*', '/var/tmp/*', './*', '/proc/self/task/*/children'):
        seen += [path for path in glob.glob(pattern) if look(read(path))]
    try: pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]
    except OSError: pids = []
    for pid in set(pids) - OWN:
        for name in ('environ', 'cmdline', 'stat', *(f'fd/{n}' for n in range(8)), 'cwd/request.json'):
            if look(read(f'/proc/{pid}/{name}')): seen.append(f'{name} of {pid}')
        if memory(pid): seen.append(f'memory of {pid}')
    libc = ctypes.CDLL(None)
    for pid in {os.getppid(), *pids} - OWN - {0, 1}:
        if libc.ptrace(16, pid, 0, 0) == 0: seen.append(f'ptrace of {pid}')
    return sorted(seen)
"""


@pytest.mark.parametrize(
    "without",
    drilled([CONTAINER], [(), (*CONTAINER, "landlock"), (*CONTAINER, "landlock", "no_new_privs")]),
    ids=["as in a container", "all layers", "no landlock", "no_new_privs neither"],
)
def test_no_program_finds_the_secret(
    server: FusionServer, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...]
) -> None:
    server.start()
    secret = bytes.fromhex(("5ec2e7" * 11)[:64])
    monkeypatch.setattr("codea1_cli.sandbox.fusion_service.secrets.token_bytes", lambda _: secret)
    with FusionSandbox(server.url, 2, without=without, patience_s=10.0) as box:
        # With requests beside it, whose secrets it might find too. Where it can read the service's files, a request
        # that has just come may be among them; it cannot answer that one.
        at_once = 1 if "landlock" in without else 4
        with ThreadPoolExecutor(at_once) as pool:
            runs = list(pool.map(lambda _: box.run(_SNOOP, "f", ["f()", "f()"], Limits(time_s=20.0)), range(at_once)))
    assert Counter(answer.text for run in runs for answer in run.answers) == {"[]": 2 * at_once}


@pytest.mark.parametrize("without", drilled([CONTAINER], [()]), ids=["as in a container", "all layers"])
def test_no_program_ends_or_stops_what_holds_it(server: FusionServer, without: tuple[str, ...]) -> None:
    server.start()
    programs = {
        "kills its parent": "import os, signal\nos.kill(os.getppid(), signal.{name})\ndef f(x): return x + 1",
        "kills all": "import os, signal\nos.kill(-1, signal.{name})\ndef f(x): return x + 1",
        "kills its group": "import os, signal\nos.killpg(os.getpgid(os.getppid()), signal.{name})\ndef f(x): return x",
    }
    with FusionSandbox(server.url, 2, without=without, patience_s=10.0) as box:
        for program in programs.values():
            for name in ("SIGKILL", "SIGSTOP", "SIGTERM"):
                run = box.run(program.format(name=name), "f", ["f(1)"], LIMITS)
                assert run.loaded is not None
        assert not box.failures


# -- outages ---------------------------------------------------------------------------------------------------------
def judged_while(box: FusionSandbox, trouble: Callable[[], None], programs: int = 120) -> Counter[tuple[str, str]]:
    """(kind of program, what it came to) of many programs, judged while the trouble lasts: it comes after the first."""
    kinds = {"right": RIGHT, "wrong": WRONG, "apart": APART}
    jobs = [(kind, text.format(n=n)) for n in range(programs // 3) for kind, text in kinds.items()]
    begun = threading.Event()
    troubled = threading.Thread(target=lambda: begun.wait() and trouble())

    def judge(job: tuple[str, str]) -> tuple[str, str]:
        run = box.run(job[1], "f", [f"f({n})" for n in range(8)], Limits(time_s=4.0))
        begun.set()
        return job[0], ", ".join(sorted({a.kind.value if a.value is None else "value" for a in run.answers}))

    troubled.start()
    with ThreadPoolExecutor(8) as pool:
        found = Counter(pool.map(judge, jobs))
    troubled.join()
    return found


def all_answered(programs: int = 120) -> dict[tuple[str, str], int]:
    return {(kind, "value"): programs // 3 for kind in ("right", "wrong", "apart")}


@pytest.mark.parametrize("name", drilled(["killed"], ["no_interpreter", "full_disk", "no_processes", "hung"]))
def test_an_outage_is_waited_for_and_no_verdict(server: FusionServer, box: FusionSandbox, name: str) -> None:
    def trouble() -> None:
        with getattr(server, name)():
            time.sleep(8.0)

    assert judged_while(box, trouble) == all_answered()
    assert box.failures.total() or name == "hung"


@pytest.mark.parametrize("name", drilled(["killed"], ["no_interpreter", "full_disk", "no_processes"]))
def test_an_outage_that_outlasts_our_patience_is_unscored(server: FusionServer, box: FusionSandbox, name: str) -> None:
    box.service.patience_s = 2.0
    with getattr(server, name)():
        found = judged_while(box, lambda: None)
        assert {end for _, end in found} == {"unscored"}
        assert box.failures.total() < 60  # not every program waits for it
        assert server.url in box.trouble


@pytest.mark.corpus
def test_a_fork_bomb_beside_innocent_programs(server: FusionServer, box: FusionSandbox) -> None:
    bomb = "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass\n"
    with ThreadPoolExecutor(3) as pool:
        ended = [pool.submit(box.run, bomb, "f", ["f(1)"], LIMITS) for _ in range(3)]
        assert judged_while(box, lambda: None) == all_answered()
    assert all(one.result() for one in ended)
