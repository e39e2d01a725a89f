"""What a network does to a command: nothing answers, a door is closed, a transfer breaks off, a disk is full."""

import errno
import hashlib
import itertools
import os
import shutil
import socket
import threading
from collections import namedtuple
from pathlib import Path

import httpx
import pytest
from huggingface_hub import close_session
from huggingface_hub.errors import LocalEntryNotFoundError

from codea1_cli import hub as hub_module
from codea1_cli.cli import app
from codea1_cli.cli.console import run_app
from codea1_cli.data.sources.rows import HubRows
from codea1_cli.errors import CodeA1Error, EnvironmentFault, Unreachable, UserError
from codea1_cli.hub import announce, fetch, find_repo
from codea1_cli.models.loading import resolve_model
from codea1_cli.problems.benchmark_files import Published, find_file
from codea1_cli.tiny import model_path, problems_path
from tests.hub import COMMIT, parquet

COMMANDS = {
    "a model to train": ["train", "--recipe", "tiny", "model=nobody/nothing"],
    "a model to measure": ["eval-code", "humaneval", "--model", "nobody/nothing", "--data", "DATA"],
    "a data set": ["prepare-data", "nobody/nothing", "--out", "out"],
    "a recipe's data": ["train", "--recipe", "135m", "model=builtin:tiny"],
    "one side's model": ["train", "--recipe", "tiny", "code.model=nobody/nothing"],
    "a benchmark of a run": ["train", "--recipe", "tiny", "eval.benchmarks=[ult]"],
    "a benchmark": ["eval-code", "mbpp", "--model", "builtin:tiny"],
    "a benchmark of tests": ["eval-tests", "ult", "--model", "builtin:tiny"],
    "a model that writes tests": ["eval-tests", "SHOP", "--model", "nobody/nothing"],
    "a model that makes pairs": ["make-pairs", "ROWS", "--role", "code", "--out", "out", "--samples", "nobody/nothing"],
    "a tokenizer": ["prepare-data", "ROWS", "--out", "out", "--tokenizer", "nobody/nothing"],
    "a model to keep rows by": ["prepare-data", "ROWS", "--out", "out", "--solve-rate", "nobody/nothing"],
}


@pytest.fixture
def data(tmp_path):
    rows = [{"task_id": "HumanEval/0", "prompt": "def f(x):\n", "canonical_solution": "    return x\n", "entry_point": "f",
             "base_input": [[1]], "plus_input": [[2]], "atol": 0, "contract": "", "test": ""}]  # fmt: skip
    (tmp_path / "data.parquet").write_bytes(parquet(rows))
    return tmp_path / "data.parquet"


@pytest.mark.parametrize("what", COMMANDS)
def test_a_hub_that_does_not_answer_is_one_line_within_seconds(hub, data, tmp_path, monkeypatch, capfd, what):
    """A server that takes the connection and never answers; whoever is refused at once is told the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub_module, "REACH_S", 0.1)
    monkeypatch.setattr(hub_module, "CONNECT_S", 60.0)
    hub.fault = "hang"
    files = {"DATA": data, "ROWS": problems_path("heldout"), "SHOP": Path(__file__).parent / "fixtures" / "shop.py"}
    code = run_app(app, [str(files.get(word, word)) for word in COMMANDS[what]])
    err = capfd.readouterr().err
    assert code == 3
    assert len(hub.asked) <= 1
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "no answer within 0.1 s" in line
    assert "HF_ENDPOINT" in err
    assert "Ray" not in err
    assert not list(tmp_path.glob("out*"))


def refuses(error):
    def connect(*_, **__):
        raise error

    return connect


def black_hole(*_, **__):
    threading.Event().wait(30)


@pytest.mark.parametrize("kind", ["dataset", "model"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (refuses(socket.gaierror(socket.EAI_NONAME, "Name or service not known")), "HUB cannot be reached: Name or"),
        (
            refuses(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")),
            "HUB cannot be reached: Connection",
        ),
        (black_hole, "HUB cannot be reached: no answer within 0.2 s"),
        ("401", "HUB refuses the KIND me/set to whoever has no token"),
        ("403", "HUB refuses the KIND me/set to whoever has no token"),
        ("404", "there is no KIND me/set on HUB, or it is private"),
        ("503", "cannot fetch the KIND me/set: "),
    ],
)
def test_every_way_not_to_answer_is_one_line(hub, monkeypatch, kind, fault, said):
    """It names the id and a way out; who was not reached is not waited for again."""
    monkeypatch.setattr(hub_module, "CONNECT_S", 0.2)
    if isinstance(fault, str):
        hub.fault = fault
    else:
        monkeypatch.setattr(socket, "create_connection", fault)
    for _ in range(2):
        with pytest.raises(CodeA1Error, match=f"{kind} me/set") as failure:
            find_repo(kind, "me/set")
        assert said.replace("HUB", os.environ["HF_ENDPOINT"]).replace("KIND", kind) in failure.value.what
        assert failure.value.hint
        assert "\n" not in failure.value.what + failure.value.hint
        if not isinstance(fault, str):
            monkeypatch.setattr(socket, "create_connection", None)


@pytest.mark.parametrize("address", ["nonsense", "hub.invalid", "htp://hub.invalid", "https://"])
def test_an_address_that_is_none_is_named_with_its_variable(hub, monkeypatch, capfd, tmp_path, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("CODEA1_GITHUB", address)
    for words in ("prepare-data mbpp --out out", "train --recipe tiny model=me/none", "eval-code mbpp --model me/none"):
        assert run_app(app, words.split()) in (2, 3)
        assert f"HF_ENDPOINT={address.rstrip('/')} is no address" in capfd.readouterr().err
    run_app(app, ["eval-tests", "ult", "--model", "builtin:tiny"])
    assert f"CODEA1_GITHUB={address.rstrip('/')} is no address" in capfd.readouterr().err.replace(
        "HF_ENDPOINT", "CODEA1_GITHUB"
    )


@pytest.mark.parametrize("offline", [False, True])
def test_the_way_out_begins_with_what_needs_no_network(hub, monkeypatch, capfd, data, offline):
    """And speaks of no mirror to whoever has switched the network off."""
    hub.fault = "503"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1" if offline else "")
    for words, own in (
        ("train --recipe tiny model=me/none", "a folder with the model, or builtin:tiny"),
        ("prepare-data me/set --out out", "a file or folder that is here; `codea1 train --recipe tiny` needs none"),
        ("eval-code mbpp --model builtin:tiny", "--data FILE, or CODEA1_BENCHMARKS=FOLDER with it"),
    ):
        assert run_app(app, words.split()) == 3
        told = capfd.readouterr().err
        assert (
            f"hint: without a network: {own}; with one: {'unset HF_HUB_OFFLINE' if offline else 'HF_ENDPOINT names'}"
            in told
        )


def test_a_proxy_that_cannot_be_reached_is_named(monkeypatch):
    monkeypatch.setattr(hub_module, "_unreachable", {})
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
    monkeypatch.setenv("https_proxy", f"http://name:secret@127.0.0.1:{(port := closed_port())}")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(EnvironmentFault, match=f"by the proxy 127.0.0.1:{port}: Connection refused") as failure:
        find_repo("model", "me/none")
    assert "secret" not in failure.value.what


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize(
    ("fault", "kind", "said", "way_out"),
    [
        ("gated", EnvironmentFault, "the dataset me/set is gated", "accept its terms at"),
        ("private", UserError, "there is no dataset me/set", "HF_TOKEN"),
    ],
)
def test_closed_doors_say_which_token(hub, monkeypatch, fault, kind, said, way_out):
    hub.add("datasets/me/set", {"train.parquet": parquet([{"a": 1}])})
    hub.fault = fault
    with pytest.raises(kind, match=said) as failure:
        find_repo("dataset", "me/set")
    assert way_out in (failure.value.hint or "")
    assert "HF_TOKEN" in (failure.value.hint or "")
    hub.token = "hf_mine"
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    assert len(list(HubRows("me/set", "train").rows())) == 1


def test_mirrors_and_proxies_by_their_variables(hub, monkeypatch):
    hub.add("datasets/me/set", {"train.parquet": parquet([{"a": 1}])})
    monkeypatch.setenv("http_proxy", os.environ["HF_ENDPOINT"])
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.invalid")
    close_session()
    assert len(list(HubRows("me/set", "train").rows())) == 1
    assert hub.asked


def test_the_login_of_a_mirror_is_shown_to_nobody(hub, monkeypatch, capfd):
    hub.add("datasets/me/set", {"train.parquet": parquet([{"a": 1}])})
    monkeypatch.setenv("HF_ENDPOINT", os.environ["HF_ENDPOINT"].replace("//", "//me:secret@"))
    assert len(list(HubRows("me/set", "train").rows())) == 1
    told = capfd.readouterr().err
    assert "of the dataset me/set from http://127.0.0.1:" in told
    monkeypatch.setenv("HF_ENDPOINT", "http://me:secret@127.0.0.1:9")
    with pytest.raises(Unreachable) as failure:
        find_repo("dataset", "me/other")
    assert "secret" not in f"{told} {failure.value} {failure.value.hint} {failure.value.why}"


def test_unknown_names_and_revisions(hub):
    hub.add("datasets/me/set", {})
    for ask in (lambda: find_repo("model", "me/set"), lambda: find_repo("dataset", "me/set", "nothing")):
        with pytest.raises(UserError, match="me/set"):
            ask()


def test_a_transfer_that_breaks_off_goes_on(hub, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 14)  # what is kept when one breaks off
    content = os.urandom(1 << 18)
    hub.add("models/me/big", {"weights.bin": content})
    repo = find_repo("model", "me/big")
    hub.fault, hub.left = "cut", 3
    assert fetch(repo, "weights.bin").read_bytes() == content
    assert hub.sent["weights.bin"] < 1.1 * len(content), "what had come is not sent again"
    asked = len(hub.asked)
    assert fetch(repo, "weights.bin").read_bytes() == content
    assert len(hub.asked) == asked


def test_files_that_were_never_reached_are_not_asked_for_at_a_second_use(hub, capfd):
    """Of a set that a limit reads in part, which is so without a network too."""
    hub.add("datasets/me/set", {f"train-{number}.parquet": parquet([{"a": number}] * 5) for number in range(3)})
    first = list(itertools.islice(HubRows("me/set", "train").rows(), 4))
    assert "fetching 3 files" in capfd.readouterr().err
    hub.fault = "503"
    hub.asked.clear()
    assert list(itertools.islice(HubRows("me/set", "train").rows(), 4)) == first
    assert len(list(HubRows("me/set", "train").first_rows())) == 5
    assert hub.asked == []
    with pytest.raises(EnvironmentFault, match="me/set"):
        list(HubRows("me/set", "train").rows())


def test_a_set_goes_on_with_the_files_that_are_missing(hub, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    hub.add("datasets/me/set", {f"train-{number}.parquet": parquet([{"a": number}] * 50) for number in range(3)})
    rows = HubRows("me/set", "train").rows()
    for _ in range(50):
        next(rows)
    hub.fault, hub.left = "cut", 10**6
    with pytest.raises(EnvironmentFault, match=r"train-1\.parquet") as failure:
        list(rows)
    assert "the same command goes on" in (failure.value.hint or "")
    hub.fault, before = "", hub.sent["train-0.parquet"]
    assert len(list(HubRows("me/set", "train").rows())) == 150
    assert hub.sent["train-0.parquet"] == before


def test_files_that_are_not_what_the_hub_says(hub):
    hub.add("datasets/me/set", {"train.parquet": parquet([{"a": 1}])})
    hub.fault = "forged"
    with pytest.raises(EnvironmentFault, match="another SHA-256"):
        list(HubRows("me/set", "train").rows())
    hub.fault = ""
    assert len(list(HubRows("me/set", "train").rows())) == 1


def test_a_full_disk_is_named(hub, monkeypatch, tmp_path):
    hub.add("datasets/me/set", {"train.parquet": parquet([{"a": 1}])})
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as small:
        small.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 10))
        with pytest.raises(EnvironmentFault, match=f"no room in {tmp_path}/hf/hub for the dataset me/set"):
            announce(find_repo("dataset", "me/set"), ["train.parquet"])

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("huggingface_hub.hf_hub_download", full)
    with pytest.raises(EnvironmentFault, match="no room in") as failure:
        list(HubRows("me/set", "train").rows())
    assert "HF_HOME" in (failure.value.hint or "")


def test_what_was_asked_before_needs_no_network(hub, monkeypatch):
    hub.add("datasets/me/set", {"train.parquet": parquet([{"a": 1}])})
    assert len(list(HubRows("me/set", "train").rows())) == 1
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert HubRows("me/set", "train").identity()["revision"] == COMMIT
    assert len(list(HubRows("me/set", "train").rows())) == 1
    with pytest.raises(EnvironmentFault, match="HF_HUB_OFFLINE is set"):
        find_repo("dataset", "me/other")


def test_files_of_a_set_that_was_asked_for_before_the_network_went(hub, monkeypatch, capfd):
    """What the hub has is known; that nobody gives it is one line, told before anything is announced."""
    hub.add("datasets/me/set", {"train.parquet": parquet([{"a": 1}])})
    repo = find_repo("dataset", "me/set")
    monkeypatch.setattr(hub_module, "REACH_S", 0.1)
    monkeypatch.setattr(hub_module, "CONNECT_S", 60.0)
    hub.fault = "hang"
    with pytest.raises(Unreachable, match=r"the dataset me/set: .* cannot be reached: no answer within 0\.1 s"):
        list(HubRows("me/set", "train").rows())
    assert "fetching" not in capfd.readouterr().err

    def gone(*_, **__):  # between two files, in huggingface_hub's words
        raise LocalEntryNotFoundError("cannot find the requested files") from httpx.ConnectError("Connection refused")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", gone)
    with pytest.raises(Unreachable, match=r"cannot be reached: Connection refused"):
        fetch(repo, "train.parquet")
    assert capfd.readouterr().err.count("trying again") == 2


def test_a_second_use_reads_the_commit_of_the_first(hub, monkeypatch, capfd):
    hub.add("datasets/me/set", {"train.parquet": parquet([{"a": 1}])})
    assert HubRows("me/set", "train").identity()["revision"] == COMMIT
    monkeypatch.setattr("tests.hub.COMMIT", newer := "beef" * 10)
    hub.asked.clear()
    assert HubRows("me/set", "train").identity()["revision"] == COMMIT
    assert hub.asked == []
    assert f"at {COMMIT[:8]}; --revision main takes the newest" in capfd.readouterr().err
    assert HubRows("me/set", "train", "main").identity()["revision"] == newer
    assert HubRows("me/set", "train").identity()["revision"] == newer


def test_a_model_is_fetched_once(hub, capfd):
    files = {path.name: path.read_bytes() for path in model_path().iterdir() if path.is_file()}
    hub.add("models/me/tiny", {**files, "onnx/model.onnx": b"-" * 999, "training_args.bin": b"-"})
    assert resolve_model("me/tiny", get=False) == "me/tiny"
    folder = resolve_model("me/tiny")
    said = capfd.readouterr().err
    assert "fetching" in said
    assert "of the model me/tiny" in said
    assert {name.rpartition("/")[2] for name in hub.sent} <= set(files)
    hub.asked.clear()
    assert resolve_model("me/tiny") == resolve_model("me/tiny", get=False) == folder
    assert hub.asked == []
    (hub_module.Path(folder) / "config.json").unlink()
    assert resolve_model("me/tiny") == folder, "what is missing is fetched again"


def test_a_file_of_github_is_checked_by_its_own_hash(hub, tmp_path):
    content = b'{"kind": "a"}\n' * 1000
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    where = Published("me/bench", "a" * 40, "data/x.jsonl", 1000, 10, blob)
    hub.add("raw/me/bench", {where.file: content})

    def found():
        return find_file("A", lambda row: "kind" in row, where, None)

    hub.fault, hub.left = "cut", 1
    path = found()
    assert path.read_bytes() == content
    hub.asked.clear()
    assert found() == path
    assert hub.asked == []
    path.write_bytes(content[:-1])
    with pytest.raises(EnvironmentFault, match="has changed since it was fetched"):
        found()
    path.unlink()
    hub.add("raw/me/bench", {where.file: content + b"{}\n"})
    with pytest.raises(EnvironmentFault, match="is not the published one"):
        found()


def test_every_error_of_the_hub_has_a_way_out(hub, monkeypatch):
    monkeypatch.setattr(hub_module, "REACH_S", 0.3)
    for fault in ("hang", "gated", "private"):
        hub.fault = fault
        monkeypatch.setattr(hub_module, "_unreachable", {})
        with pytest.raises(CodeA1Error) as failure:
            find_repo("model", "me/none")
        assert failure.value.hint


def test_one_dead_network_is_waited_for_once(hub, tmp_path, monkeypatch, capfd):
    """Neither the benchmarks nor GitHub are asked after a hub that does not answer."""
    monkeypatch.chdir(tmp_path)
    waited = []

    def no_answer(call, seconds):
        waited.append(seconds)
        raise TimeoutError(f"no answer within {seconds} s")

    monkeypatch.setattr(hub_module, "_bounded", no_answer)
    for words in (["prepare-data", "mbpp", "--out", "out"], ["train", "--recipe", "135m", "model=builtin:tiny"]):
        monkeypatch.setattr(hub_module, "_unreachable", {})
        waited.clear()
        assert run_app(app, words) == 3
        assert len(waited) == 1
    assert "warning" not in capfd.readouterr().err
