"""The sandbox-fusion backend against a stand-in of the service: the same verdicts, and no failure of it is a verdict."""

import base64
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from codea1_cli import network
from codea1_cli.cli.console import run_app
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox import fusion_service
from codea1_cli.sandbox.base import ProgramRun
from codea1_cli.sandbox.fusion import FusionSandbox
from codea1_cli.sandbox.make import check_endpoint
from tests.sandbox.fusion_standin import StandIn, stand_in
from tests.sandbox.shared import LATE, QUICK

LIMITS = QUICK
GOOD = "def f(x): return x + 1"


@pytest.fixture(scope="module")
def service() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture(scope="module")
def opened(service: StandIn) -> Iterator[FusionSandbox]:
    with FusionSandbox(service.url, 2, patience_s=20.0, warm=()) as box:
        yield box


@pytest.fixture
def box(service: StandIn, opened: FusionSandbox) -> FusionSandbox:
    """Well, and with nothing counted."""
    service.fail("", 0)
    service.seconds = 0.0
    opened.failures.clear()
    opened.service.patience_s = 20.0
    opened.service._since = opened.service.down = None  # another test's outage
    return opened


@pytest.fixture
def brief(box: FusionSandbox, monkeypatch: pytest.MonkeyPatch) -> FusionSandbox:
    """It waits for next to nothing, and asks a service that is down again at once."""
    box.service.patience_s = 0.3
    monkeypatch.setattr(fusion_service, "_ASK_AGAIN_S", 0.0)
    return box


def kinds(run: ProgramRun) -> list[str]:
    return [answer.kind.value for answer in run.answers]


def test_it_answers_as_the_local_backend_does(box: FusionSandbox, sandbox) -> None:
    program = (
        "import os\ndef f(x):\n    print('noise' * 50000)\n    if x == 1: os._exit(0)\n    if x == 2: raise ValueError(x)\n"
        "    if x == 3:\n        while True: pass\n    if x == 4: return bytearray(1 << 40)\n    if x == 5: return object()\n"
        "    if x == 6: return 'a' * 300000\n    return {x: [1.5, float('nan'), (None, {2})]}"
    )
    calls = [f"f({n})" for n in range(8)]
    remote, local = box.run(program, "f", calls, LIMITS), sandbox.run(program, "f", calls, LIMITS)
    assert kinds(remote) == kinds(local)
    assert [a.text for a in remote.answers] == [a.text for a in local.answers]
    assert box.failures.total() == 0
    assert box.layers == sandbox.layers


def test_hash_seeds_and_load_failures(box: FusionSandbox) -> None:
    seeds = [box.run("def f(): return hash('a')", "f", ["f()"], LIMITS, seed).answers[0].text for seed in (0, 1, 0)]
    assert seeds[0] == seeds[2] != seeds[1]
    for program, kind in (
        ("def f(", "load_error"),
        ("import os; os._exit(0)", "crashed"),
        ("while True: pass", "timeout"),
    ):
        run = box.run(program, "f", ["f()"], LATE if kind == "timeout" else LIMITS)
        assert run.loaded is False
        assert kinds(run) == [kind]


@pytest.mark.parametrize("fault", StandIn.FAULTS)
def test_no_outage_is_a_verdict(brief: FusionSandbox, service: StandIn, fault: str, monkeypatch) -> None:
    service.fail(fault)
    if fault in ("hang", "drip"):
        monkeypatch.setattr(fusion_service, "PROBE_S", 0.2)
        monkeypatch.setattr("codea1_cli.sandbox.fusion._START_S", -5.0)
    run = brief.run(GOOD, "f", ["f(1)", "f(2)"], replace(LIMITS, load_s=0.0, time_s=0.1))
    assert run.loaded is None
    assert kinds(run) == ["unscored", "unscored"]
    assert service.url in run.load_detail
    assert brief.failures.total() >= 2


def test_what_was_unscored_is_no_answer_of_the_reference(brief: FusionSandbox, service: StandIn) -> None:
    service.fail("busy")
    judge = Judge(brief, limits=LIMITS)
    assert judge.expected(GOOD, "f", ["f(1)"])["f(1)"].reason == "unscored"
    service.fail("", 0)
    assert judge.expected(GOOD, "f", ["f(1)"])["f(1)"].valid


def test_an_outage_within_our_patience_costs_no_verdict(box: FusionSandbox, service: StandIn) -> None:
    service.fail("busy", times=3)
    assert kinds(box.run(GOOD, "f", ["f(1)"], LIMITS)) == ["value"]
    assert dict(box.failures) == {"status": 3}


def test_a_service_that_is_down_is_asked_now_and_then(brief: FusionSandbox, service: StandIn, monkeypatch) -> None:
    monkeypatch.setattr(fusion_service, "_ASK_AGAIN_S", 60.0)
    brief.service.patience_s = 1.5  # long enough for an answer of a busy machine
    service.fail("busy")
    brief.run(GOOD, "f", ["f(1)"], LIMITS)
    asked = service.requests
    assert kinds(brief.run(GOOD, "f", ["f(1)"], LIMITS)) == ["unscored"]
    assert service.requests == asked
    assert "503" in brief.trouble


def test_an_answer_of_another_request_is_none(box: FusionSandbox, service: StandIn, monkeypatch) -> None:
    secrets = iter([bytes(32), b"\1" * 32])
    monkeypatch.setattr("codea1_cli.sandbox.fusion_service.secrets.token_bytes", lambda _: next(secrets))
    kept: list[dict] = []
    answer = service.answer
    monkeypatch.setattr(service, "answer", lambda *asked: kept.append(answer(*asked)) or kept[0])
    box.service.ask((), 0.0, 20.0)
    with pytest.raises(fusion_service.ServiceFailure, match="did not sign"):
        box.service.ask((), 0.0, 20.0)
    box.service._since = None


def test_programs_that_wait_share_a_request_and_no_more_are_under_way_than_wished(
    box: FusionSandbox, service: StandIn
) -> None:
    service.fail("", 0)
    service.seconds = 0.2
    programs = [f"def f(x): return x + {n}" for n in range(24)]
    with ThreadPoolExecutor(24) as pool:
        runs = list(pool.map(lambda program: box.run(program, "f", ["f(1)"], LIMITS), programs))
    assert [run.answers[0].text for run in runs] == [str(1 + n) for n in range(24)]
    assert service.most == box.requests == 2
    assert service.requests <= len(programs) // 2


@pytest.mark.slow
def test_a_program_that_breaks_its_request_costs_no_other_its_verdict(
    brief: FusionSandbox, service: StandIn, monkeypatch
) -> None:
    answer = service.answer

    def breaks(request: dict, fault: str) -> dict:
        import base64

        sent = json.loads(base64.b64decode(request["files"]["request.json"]))
        return answer(request, "killed" if any("BREAK" in job["program"] for job in sent["jobs"]) else fault)

    monkeypatch.setattr(service, "answer", breaks)
    programs = [GOOD, f"{GOOD}  # BREAK", GOOD, GOOD]
    service.seconds = 0.1
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda program: brief.run(program, "f", ["f(1)"], LIMITS), programs))
    assert [kinds(run)[0] for run in runs] == ["value", "unscored", "value", "value"]


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(EnvironmentFault, match=f"{url} failed: Connection refused") as fault:
        FusionSandbox(url, patience_s=0.1)
    assert "--endpoint" in (fault.value.hint or "")


@pytest.mark.parametrize(
    "endpoint", ["banana", "ftp://host:1", "http://", "http://host:port", "http://host/?a", "host:80"]
)
def test_an_address_that_is_none_is_refused_at_once(endpoint: str) -> None:
    with pytest.raises(UserError, match="not the address"):
        FusionSandbox(endpoint)


def test_an_endpoint_is_needed_and_may_come_from_the_environment(monkeypatch, service: StandIn) -> None:
    monkeypatch.delenv("SANDBOX_FUSION_ENDPOINT", raising=False)
    with pytest.raises(UserError, match="endpoint"):
        FusionSandbox()
    monkeypatch.setenv("SANDBOX_FUSION_ENDPOINT", f"{service.url}/")
    assert check_endpoint(None) == service.url
    monkeypatch.setenv("SANDBOX_FUSION_ENDPOINT", service.url.replace("//", "//me:secret@"))
    with pytest.raises(UserError, match="holds a login, and none is ever sent") as failure:
        check_endpoint(None)
    assert "secret" not in failure.value.what + str(failure.value.hint)


PROXIES = {
    "http_proxy=http://p:3128": ["http://far:1"],
    "HTTP_PROXY=p:3128": ["http://far:1", "http://10.0.0.1"],
    "all_proxy=http://p:3128": ["http://far:1", "https://far"],
    "https_proxy=http://u:w@p:3128": ["https://far/x"],
    "http_proxy=http://p:3128 no_proxy=.corp,10.0.0.1": ["http://far:1"],
    "http_proxy=http://p:3128 NO_PROXY=*": [],
}


@pytest.mark.parametrize("variables", PROXIES)
def test_the_usual_variables_name_a_proxy_and_never_for_this_machine(variables: str, monkeypatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    for one in variables.split():
        monkeypatch.setenv(*one.split("=", 1))
    for endpoint in PROXIES[variables]:
        assert (proxy := network.proxy_for(endpoint)) is not None
        assert (proxy.hostname, proxy.port) == ("p", 3128)
    away = ["http://a.corp:1", "http://10.0.0.1:80"] if "corp" in variables else []
    for endpoint in ("http://localhost:1", "http://127.0.0.9:1", "http://[::1]:1", "https://a.localhost", *away):
        assert network.proxy_for(endpoint) is None


def test_what_is_no_http_proxy_is_told_before_anything_is_asked(monkeypatch) -> None:
    for proxy in ("socks5://user:secret@p:1080", "http://p:many", "http://"):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(UserError, match="proxy for http://far:1 cannot be used") as fault:
            FusionSandbox("http://far:1")
        assert "secret" not in fault.value.what
        assert "no_proxy" in (fault.value.hint or "")


def test_requests_to_a_service_elsewhere_go_through_the_proxy(
    service: StandIn, box: FusionSandbox, monkeypatch
) -> None:
    """The stand-in as a proxy, which fetches what it is asked for by itself; then one that refuses."""
    monkeypatch.setenv("http_proxy", service.url.replace("//", "//user:p%40ss@"))
    with FusionSandbox("http://service.invalid:8080/api", 1, warm=()) as far:
        assert kinds(far.run(GOOD, "f", ["f(1)"], LIMITS)) == ["value"]
        assert service.last == ("http://service.invalid:8080/api/run_code", "Basic dXNlcjpwQHNz")
    monkeypatch.setattr("codea1_cli.sandbox.fusion._START_PATIENCE_S", 0.0)
    service.fail("busy")
    with pytest.raises(EnvironmentFault, match=r"service.invalid:8080 \(through the proxy 127.0.0.1:\d+\) failed: it"):
        FusionSandbox("http://service.invalid:8080")
    monkeypatch.setenv("https_proxy", service.url)  # it knows no CONNECT
    with pytest.raises(
        EnvironmentFault, match=r"\(through the proxy 127.0.0.1:\d+\) failed: Tunnel connection failed: 501"
    ):
        FusionSandbox("https://service.invalid")


def test_a_layer_or_an_interpreter_that_is_missing_there_is_named(service: StandIn) -> None:
    service.fail("", 0)
    with pytest.raises(EnvironmentFault, match="lacks required layers: landlock"):
        FusionSandbox(service.url, require=["landlock"], without=["landlock"])
    with pytest.raises(EnvironmentFault, match="cannot run /no/python"):
        FusionSandbox(service.url, python="/no/python")


def test_closing_ends_what_is_under_way(service: StandIn, box: FusionSandbox) -> None:
    with FusionSandbox(service.url, 1, warm=()) as other:
        service.seconds = 100.0
        began = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(other.run, GOOD, "f", ["f(1)"], LIMITS) for _ in range(2)]
            threading.Timer(0.3, other.close).start()
            assert [kinds(run.result()) for run in runs] == [["unscored"], ["unscored"]]
        assert time.monotonic() - began < 60.0


COMMANDS = {
    "judge": ["judge", "rows.jsonl"],
    "eval-code": ["eval-code", "humaneval", "--samples", "samples.jsonl"],
    "eval-tests": ["eval-tests", "mine.py", "--suites", "suites.jsonl"],
    "prepare-data": ["prepare-data", "kodcode", "--out", "data"],
    "check": ["sandbox", "check"],
    "bench": ["sandbox", "bench"],
    "doctor": ["doctor"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sandbox", "fusion", "--endpoint", "banana"], "'banana' is not the address"),
        (["--sandbox", "banana"], "no sandbox is called 'banana'"),
        (["--endpoint", "http://localhost:1"], "the local sandbox has no endpoint"),
    ],
)
def test_every_command_knows_the_service(name: str, words: list[str], said: str, tmp_path, monkeypatch, capsys) -> None:
    from codea1_cli.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEA1_SHARED", str(tmp_path))
    if name in ("eval-code", "eval-tests"):
        monkeypatch.setattr("codea1_cli.evals.evalplus.EvalPlusBenchmark.load", lambda *_: [])
        monkeypatch.setattr("codea1_cli.evals.test_generation.functions_of_file", lambda _: [])
    assert run_app(app, [*COMMANDS[name], *words]) == 2
    assert said in capsys.readouterr().err


def test_what_is_sent_for_a_check_is_all_that_it_imports(tmp_path) -> None:
    for name, text in fusion_service._uploads("codea1_cli.judging.canaries").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(base64.b64decode(text))
    code = "import sys; sys.path[:] = [sys.argv[1], *(p for p in sys.path if 'site-packages' not in p)]; "
    code += "import codea1_cli.sandbox.fusion_guest, codea1_cli.judging.canaries"
    subprocess.run([sys.executable, "-S", "-c", code, str(tmp_path)], cwd="/", check=True)


def test_judge_and_check_speak_to_the_service(
    service: StandIn, box: FusionSandbox, tmp_path, capsys, monkeypatch
) -> None:
    from codea1_cli.cli import app

    monkeypatch.setattr("codea1_cli.sandbox.fusion._START_PATIENCE_S", 0.0)
    rows = tmp_path / "rows.jsonl"
    row = {"id": "a", "reference": GOOD, "candidate": GOOD, "entry_point": "f", "tests": ["assert f(1) == 2"]}
    rows.write_text(json.dumps(row) + "\n")
    words = ["--sandbox", "fusion", "--endpoint", service.url]
    assert run_app(app, ["judge", str(rows), *words]) == 0
    assert "a  ok  1/1 passed" in capsys.readouterr().out
    service.fail("busy")
    assert run_app(app, ["sandbox", "check", *words]) == 3
    said = capsys.readouterr().err
    assert f"{service.url} failed: it answers 503" in said
