"""A server as what samples: what it is asked, what becomes of its answers, and of a server that misbehaves."""

import json
import threading
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from codea1_cli import network
from codea1_cli.durable import append_row
from codea1_cli.errors import EnvironmentFault, Unreachable, UserError
from codea1_cli.models import KEY, TEST_KEY, ServerOptions, spent_text
from codea1_cli.models import server as module
from codea1_cli.models.sampler import ModelRef, SamplingSettings, open_sampler
from codea1_cli.models.server import ServerSampler
from tests.models.stand_in_server import DRIP, StandIn, completion, refusal, stand_in_server

PROMPTS = [[{"role": "user", "content": f"question {number}"}] for number in range(3)]
GREEDY = SamplingSettings(max_new_tokens=5)
FOUR = SamplingSettings(4, 0.7, 0.9, 5, seed=3)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(network, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.delenv(KEY, raising=False)
    with stand_in_server() as found:
        yield found


def sampler(server: StandIn, folder: Path, **options: Any) -> ServerSampler:
    asked = ServerOptions(**{"server": server.url, "patience": 60.0, **options})
    found = open_sampler(ModelRef("m", label="m", server=asked.find()), kept=folder / "s.replies.jsonl")
    assert isinstance(found, ServerSampler)
    return found


def test_what_is_asked_and_what_comes_back(server: StandIn, tmp_path: Path) -> None:
    one = sampler(server, tmp_path)
    texts = one.generate(PROMPTS, FOUR)
    assert sorted(server.paths) == ["/v1/chat/completions"] * 3 + ["/v1/models"]
    body = next(body for body in server.bodies if body["messages"] == PROMPTS[1])
    seed = body.pop("seed")
    assert body == {"model": "m", "messages": PROMPTS[1], "n": 4, "temperature": 0.7, "top_p": 0.9, "max_tokens": 5}
    assert texts[1] == [f"{seed}.{i}" for i in range(4)]
    assert len({row[0] for row in texts}) == 3, "each prompt has a seed of its own"
    assert 0 <= seed < 1 << 31
    assert one.spent == {"requests": 3, "sampled": 3, "prompt_tokens": 21, "completion_tokens": 9}
    assert (one.tokens, one.seconds > 0) == (9, True)
    assert "Authorization" not in server.headers
    # Greedy samples of a prompt are one, and nothing about nuclei is asked.
    assert len(set(one.generate(PROMPTS[:1], SamplingSettings(3, max_new_tokens=5))[0])) == 1
    assert {"n", "top_p"}.isdisjoint(server.bodies[-1])
    again = sampler(server, tmp_path / "other")
    assert again.generate(PROMPTS, FOUR) == texts, "the same seeds"
    assert again.generate(PROMPTS, SamplingSettings(4, 0.7, 0.9, 5, seed=4)) != texts
    server.answer = lambda body, _: completion("before STOP after")
    assert one.generate(PROMPTS[:1], SamplingSettings(max_new_tokens=5, stop=("#a", "STOP", "#b", "#c", "#d")))[0] == [
        "before "
    ]
    assert server.bodies[-1]["stop"] == ["#a", "STOP", "#b", "#c"], "no more than OpenAI's API takes"


def test_a_text_is_gone_on_with_and_what_is_known_of_a_server_is_sent_along(server: StandIn, tmp_path: Path) -> None:
    server.owner = "vllm"
    one = sampler(server, tmp_path, omit=["min_p", "seed"])
    one.generate([["def f("]], GREEDY)
    assert server.paths[-1] == "/v1/completions"
    assert server.bodies == [
        {"model": "m", "prompt": "def f(", "temperature": 0.0, "max_tokens": 5, "top_k": -1, "repetition_penalty": 1.0}
    ]
    assert one.describe() == {
        "model": "m", "label": "m", "engine": "server", "server": server.url, "omit": ["min_p", "seed"],
        "added": {"top_k": -1, "repetition_penalty": 1.0},
    }  # fmt: skip


def test_the_key_goes_to_the_server_and_nowhere_else(server: StandIn, tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.setenv(KEY, " sk-secret ")
    one = sampler(server, tmp_path)
    server.answer = lambda body, number: refusal(500, "who is sk-secret?") if number == 1 else completion("fine")
    one.generate(PROMPTS, GREEDY)
    assert server.headers["Authorization"] == "Bearer sk-secret"
    server.answer = lambda *_: refusal(401, "Incorrect API key provided: sk-secret")
    with pytest.raises(UserError, match="refuses the key: Incorrect API key provided: KEY") as told:
        one.generate([PROMPTS[0], PROMPTS[1] * 2], GREEDY)
    written = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    said = "".join(capfd.readouterr())
    assert "sk-secret" not in f"{written}{said}{told.value}{told.value.hint}{one.describe()}{one.server}"
    monkeypatch.setenv(KEY, "a\nb")
    with pytest.raises(UserError, match=f"the key in {KEY} cannot be sent"):
        sampler(server, tmp_path)


def test_another_server_has_another_key(monkeypatch) -> None:
    monkeypatch.setenv(KEY, "first")
    options = ServerOptions(server="https://a.test/v1")
    assert options.at("https://a.test/other", TEST_KEY).secret() == "first"
    assert options.at("http://a.test/v1", TEST_KEY).secret() == ""
    assert options.at("https://b.test/v1", TEST_KEY).secret() == ""
    monkeypatch.setenv(TEST_KEY, "second")
    assert options.at("https://b.test/v1", TEST_KEY).secret() == "second"


WELL_AGAIN = {
    "busy": (503, {}, b"<html>busy</html>"),
    "too many requests": (429, {"Retry-After": "0"}, b""),
    "until a date": (429, {"Retry-After": formatdate(0, usegmt=True)}, b""),
    "until no time": (503, {"Retry-After": "soon"}, b""),
    "dropped": None,
    "cut off": (200, {"Content-Length": "99999"}, b'{"choices": ['),
    "HTML": (200, {}, b"<html>Sign in</html>"),
    "not JSON": (200, {}, b"{" * 100_000),
    "a list": (200, {}, b"[]"),
    "no choice": (200, {}, b'{"choices": []}'),
    "a choice of nothing": (200, {}, b'{"choices": [null]}'),
    "a number for a text": (200, {}, b'{"choices": [{"message": {"content": 5}}]}'),
    "no message": (200, {}, b'{"choices": [{}]}'),
}


@pytest.mark.parametrize("fault", WELL_AGAIN)
def test_a_failure_that_passes_costs_a_request(fault: str, server: StandIn, tmp_path: Path) -> None:
    server.answer = lambda body, number: WELL_AGAIN[fault] if number in (1, 2) else server.usual(body, number)
    one = sampler(server, tmp_path, concurrency=1)
    texts = one.generate(PROMPTS, GREEDY)
    assert [len(row) for row in texts] == [1, 1, 1]
    assert all(row[0].endswith(".0") for row in texts)
    assert (one.spent["requests"], one.spent["sampled"]) == (5, 3)
    assert "2 in vain" in spent_text(one.spent)


OUTAGES = {
    "down": ((500, {}, b"oh\x1b[31m no"), "500 Internal Server Error: oh .31m no"),
    "gone": (None, "."),
    "HTML": ((200, {}, b"<html>Sign in</html>"), "it answers 200 OK, not JSON: .*, or cut off: <html>Sign in</html>"),
    "cut": ((200, {}, b'{"choices": [{"mes'), "it answers 200 OK, not JSON: .*, or cut off: "),
    "a list": ((200, {}, b"[1]"), r"it answers 200 OK, no JSON object: \[1\]"),
    "an error": ((200, {}, b'{"error": {"message": "busy"}}'), "it answers 200 OK, an error: .*busy"),
    "no choice": ((200, {}, b'{"choices": []}'), "it answers 200 OK, without a choice: "),
    "parts": (
        (200, {}, b'{"choices": [{"message": {"content": [{"text": "a"}]}}]}'),
        "a content that is list, no text: ",
    ),
    "a text for a choice": ((200, {}, b'{"choices": ["a"]}'), "a choice with no message: "),
    "asks to wait": ((429, {"Retry-After": "3600"}, b"later"), "it asks to wait 3600 s"),
    "endless": ((200, {}, b" " * 2000), "longer than 1000 bytes"),
}


@pytest.mark.parametrize("fault", OUTAGES)
def test_an_outage_ends_the_command_and_keeps_what_came(
    fault: str, server: StandIn, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_LARGEST", 1000)
    monkeypatch.setattr(network, "_FIRST_PAUSE_S", 1e9)  # longer than any patience
    answer, said = OUTAGES[fault]
    server.answer = lambda body, number: server.usual(body, number) if number < 3 else answer
    with pytest.raises(Unreachable, match=said) as told:
        sampler(server, tmp_path, concurrency=1).generate(PROMPTS, GREEDY)
    assert told.value.exit_code == 3
    assert told.value.hint == "2 answers kept: the same command goes on"
    server.answer = server.usual
    asked = len(server.bodies)
    again = sampler(server, tmp_path)
    texts = again.generate(PROMPTS, GREEDY)
    assert len(server.bodies) == asked + 1
    assert again.spent == {"kept": 2, "requests": 1, "sampled": 1, "prompt_tokens": 21, "completion_tokens": 9}
    assert texts == sampler(server, tmp_path / "whole").generate(PROMPTS, GREEDY)


@pytest.mark.parametrize("drips", [False, True])
def test_a_server_that_hangs_is_left(drips: bool, server: StandIn, tmp_path: Path) -> None:
    held = threading.Event()
    server.answer = lambda *_: DRIP if drips else held.wait(300) and None
    try:
        with pytest.raises(Unreachable, match="answer within"):
            sampler(server, tmp_path, patience=0.2).generate(PROMPTS[:1], GREEDY)
    finally:
        held.set()


def test_an_interrupt_ends_requests_under_way(server: StandIn, tmp_path: Path, monkeypatch) -> None:
    held, one = threading.Event(), sampler(server, tmp_path)
    server.answer = lambda *_: held.wait(300) and None

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "wait", interrupted)
    one._fault = EnvironmentFault("of a request that the interrupt ended")
    try:
        with pytest.raises(KeyboardInterrupt):
            one.generate(PROMPTS, GREEDY)
        assert not held.is_set(), "nothing waited for the server"
    finally:
        held.set()


def test_no_more_requests_than_allowed_are_sent_and_the_rest_later(server: StandIn, tmp_path: Path, capfd) -> None:
    server.answer = lambda body, number: (500, {}, b"") if number == 2 else server.usual(body, number)
    first = sampler(server, tmp_path, max_requests=3)
    with pytest.raises(EnvironmentFault, match="--max-requests 3"):
        first.generate(PROMPTS, GREEDY)
    assert len(server.bodies) == 3, "a try in vain is one too"
    with pytest.raises(EnvironmentFault, match="--max-requests 3"):
        first.generate(PROMPTS, SamplingSettings(max_new_tokens=6))
    second = sampler(server, tmp_path, max_requests=3)
    second.generate(PROMPTS, GREEDY)
    assert (second.spent["kept"], second.spent["sampled"], len(server.bodies)) == (2, 1, 4)
    options = ServerOptions(server=server.url, max_requests=2)
    ref = ModelRef("m", server=options.find())
    other = ModelRef("m", server=options.at(server.url, TEST_KEY))
    open_sampler(ref, kept=tmp_path / "a").generate(PROMPTS[:1], GREEDY)
    with pytest.raises(EnvironmentFault, match="--max-requests 2"):  # of both servers together
        open_sampler(other, kept=tmp_path / "b").generate(PROMPTS, GREEDY)


ONE_EACH = {
    "ignores n": lambda body, number: completion(f"{body.get('seed')}"),
    "refuses n": lambda body, number: (
        (422, {}, b'{"detail": "Unexpected fields in the request: {\'n\'}"}')
        if "n" in body
        else completion(f"{body['seed']}")
    ),
    "refuses n by name": lambda body, number: (
        refusal(400, "only 1 is supported", param="n") if body.get("n", 1) > 1 else completion(f"{body['seed']}")
    ),
}


@pytest.mark.parametrize("kind", ONE_EACH)
def test_a_server_that_gives_one_reply_is_asked_for_each(kind: str, server: StandIn, tmp_path: Path, caplog) -> None:
    server.answer = ONE_EACH[kind]
    one = sampler(server, tmp_path, concurrency=4)
    texts = one.generate(PROMPTS, FOUR)
    assert [len(set(row)) for row in texts] == [4, 4, 4], "each sample has a seed of its own"
    assert sum("one reply to a request" in record.message for record in caplog.records) == 1
    before = len(server.bodies)
    assert sampler(server, tmp_path).generate(PROMPTS, FOUR) == texts
    assert len(server.bodies) == before, "all of it was kept"
    quiet = sampler(server, tmp_path / "omit", omit=["n"])
    caplog.clear()
    assert [len(set(row)) for row in quiet.generate(PROMPTS, FOUR)] == [4, 4, 4]
    assert not caplog.records
    assert all("n" not in body for body in server.bodies[before:])


def test_equal_samples_are_told(server: StandIn, tmp_path: Path, caplog) -> None:
    server.answer = lambda body, _: completion(*["same"] * body.get("n", 1))
    sampler(server, tmp_path).generate([*PROMPTS, PROMPTS[0] * 2], FOUR)
    assert "the replies to each prompt are all equal" in caplog.text
    caplog.clear()
    sampler(server, tmp_path).generate([PROMPTS[0] * 3], FOUR)
    assert "the replies to each prompt are all equal" in caplog.text, "of one prompt"


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (refusal(400, "Unsupported parameter", param="seed"), "seed"),
        (refusal(400, "temperature must be at most 0.5"), "temperature"),
        (refusal(400, "`top_p` is deprecated"), "top_p"),
        (refusal(422, 'unknown field "stop"'), "stop"),
        ((422, {}, b'{"detail": [{"loc": ["body", "top_p"], "msg": "extra inputs"}]}'), "top_p"),
    ],
)
def test_a_parameter_that_is_refused_is_named(answer: Any, name: str, server: StandIn, tmp_path: Path) -> None:
    server.answer = lambda body, _: answer if name in body else server.usual(body, 1)
    settings = SamplingSettings(2, 0.7, max_new_tokens=5, stop=("x",))
    with pytest.raises(UserError, match=f"does not take {name}: ") as told:
        sampler(server, tmp_path).generate(PROMPTS, settings)
    assert f"--omit {name}" in str(told.value.hint)
    assert len(sampler(server, tmp_path, omit=[name]).generate(PROMPTS, settings)) == 3


def test_the_newer_name_of_max_tokens_is_found(server: StandIn, tmp_path: Path) -> None:
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server.answer = lambda body, _: (
        refusal(400, said, param="max_tokens") if "max_tokens" in body else completion("fine")
    )
    one = sampler(server, tmp_path, concurrency=1)
    assert one.generate(PROMPTS, GREEDY) == [["fine"]] * 3
    assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 5, 5, 5]
    server.answer = lambda *_: refusal(400, said, param="max_completion_tokens")
    with pytest.raises(UserError, match="does not take max_tokens"):
        one.generate([PROMPTS[0] * 2], GREEDY)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(404, "The model `x` does not exist"), "has no model 'm', or is another kind of server: The model `x`"),
        (refusal(403, "forbidden"), "refuses whoever has no key: forbidden"),
        ((403, {}, b""), "refuses whoever has no key: 403 Forbidden, without a word"),
        ((301, {}, b"moved"), "refuses the request: 301 Moved Permanently: moved"),
        ((307, {"Location": "http://127.0.0.1:1/v1/chat/completions"}, b""),
         "sends elsewhere: 307 Temporary Redirect, to http://127.0.0.1:1/v1/chat/completions"),
        ((308, {"Location": "/v2/chat/completions"}, b""), "sends elsewhere: 308 Permanent Redirect, to http://.*/v2/chat"),
        ((400, {}, b'{"error": "no \\u001b[2J"}'), "refuses the request: 400 Bad Request: no"),
    ],
)  # fmt: skip
def test_what_no_other_try_would_help_ends_at_once(answer: Any, said: str, server: StandIn, tmp_path: Path) -> None:
    server.answer = lambda *_: answer
    with pytest.raises(UserError, match=said) as told:
        sampler(server, tmp_path, concurrency=1).generate(PROMPTS, GREEDY)
    assert len(server.bodies) == 1
    assert "\x1b" not in str(told.value)


def test_an_address_that_sends_elsewhere_has_a_way_out(server: StandIn, tmp_path: Path) -> None:
    server.answer = lambda *_: (307, {"Location": "http://127.0.0.1:1/v1/chat/completions"}, b"")
    with pytest.raises(UserError) as told:
        sampler(server, tmp_path).generate(PROMPTS, GREEDY)
    assert told.value.hint == "where that is the server: http://127.0.0.1:1/v1 in place of its address"


@pytest.mark.parametrize("message", [{"content": None}, {"content": "", "reasoning_content": "hm"}])
def test_replies_without_content_are_told_and_none_with_any_is_an_error(
    message: dict[str, Any], server: StandIn, tmp_path: Path
) -> None:
    """What a model that reasons gives until its tokens are spent; they are asked for again."""
    silent = (200, {}, json.dumps({"choices": [{"message": message, "finish_reason": "length"}]}).encode())
    server.answer = lambda body, number: silent if number == 2 else server.usual(body, number)
    one = sampler(server, tmp_path / "some", concurrency=1)
    assert [row[0] == "" for row in one.generate(PROMPTS, GREEDY)] == [False, True, False]
    assert "1 reply without content: reasoning may need more --max-new-tokens" in spent_text(one.spent)
    assert "ended by" not in spent_text(one.spent)
    server.answer = lambda *_: silent
    with pytest.raises(UserError, match=r"none of 3 replies of .* has content") as told:
        sampler(server, tmp_path / "none").generate(PROMPTS, GREEDY)
    assert "a larger --max-new-tokens" in str(told.value.hint)
    server.answer = server.usual
    assert all(row[0] for row in sampler(server, tmp_path / "none").generate(PROMPTS, GREEDY))


def test_what_ended_a_reply_is_counted(server: StandIn, tmp_path: Path) -> None:
    long = "This model's maximum context length is 64 tokens"
    replies = {
        "question 0": completion("cut", finish="length"),
        "question 1": completion(None, finish="content_filter", usage=None),
        "question 2": refusal(400, long, code="context_length_exceeded"),
        "question 3": refusal(400, "filtered", code="content_filter"),
        "question 4": (200, {}, b'{"choices": [{"message": {"content": "\\ud800"}, "finish_reason": {}}], "usage": {"prompt_tokens": -1}}'),
    }  # fmt: skip
    server.answer = lambda body, _: replies[body["messages"][0]["content"]]
    one = sampler(server, tmp_path)
    texts = one.generate([[{"role": "user", "content": name}] for name in replies], GREEDY)
    assert texts == [["cut"], [""], [""], [""], ["?"]]
    ends = {name: count for name, count in one.spent.items() if name.startswith("ended_")}
    assert ends == {"ended_length": 1, "ended_content_filter": 2, "ended_too_long": 1, "ended__": 1}
    assert (one.spent["prompt_tokens"], one.spent["completion_tokens"], one.spent["uncounted"]) == (7, 3, 2)
    assert "7 prompt tokens, 3 sampled, those of 2 answers not told; replies ended by" in spent_text(one.spent)
    assert "length 1" in spent_text(one.spent)
    server.answer = lambda *_: refusal(400, long)
    with pytest.raises(UserError, match="no prompt with its reply fits"):
        sampler(server, tmp_path / "long").generate([*PROMPTS, PROMPTS[0] * 2], GREEDY)
    with pytest.raises(UserError, match="no prompt with its reply fits"):
        sampler(server, tmp_path / "each", omit=["n"]).generate([*PROMPTS, PROMPTS[0] * 2], FOUR)


def test_a_list_of_models_is_no_condition(server: StandIn, tmp_path: Path) -> None:
    for number, listed in enumerate(
        [(500, {}, b"no"), (404, {}, b""), (200, {}, b"<html>"), (200, {}, b'{"data": [3]}')]
    ):
        server.models = listed
        assert sampler(server, tmp_path / str(number)).generate(PROMPTS[:1], GREEDY)[0][0].endswith(".0")
    server.models = refusal(401, "no key")
    with pytest.raises(UserError, match="refuses whoever has no key: no key"):
        sampler(server, tmp_path / "last").generate(PROMPTS, GREEDY)


def test_no_more_requests_at_once_than_wished_and_torn_files_are_read(server: StandIn, tmp_path: Path) -> None:
    one = sampler(server, tmp_path, concurrency=2)
    texts = one.generate([[{"role": "user", "content": str(number)}] for number in range(12)], GREEDY)
    assert server.most <= 2
    file = tmp_path / "s.replies.jsonl"
    file.write_text(file.read_text()[:-20])
    append_row(file, {"other": 1})
    again = sampler(server, tmp_path)
    assert again.generate([[{"role": "user", "content": str(number)}] for number in range(12)], GREEDY) == texts
    assert (again.spent["kept"], again.spent["sampled"]) == (11, 1)


def test_options_that_are_wrong_or_without_use_are_refused() -> None:
    for wrong, said in (
        ({"server": "ftp://a/v1"}, "is not the address of a server"),
        ({"server": "http://user:word@a/v1"}, "holds a login"),
        ({"server": "http://a/v1?x=1"}, "is not the address of a server"),
        ({"server": "http://a/v1/chat/completions/"}, "is where a chat is asked"),
        ({"server": "http://a/v1/completions"}, "is where a chat is asked"),
        ({"server": "http://a/v1", "omit": ["sed"]}, "--omit sed: no such parameter"),
        ({"concurrency": 3}, "without --server there is no use for --concurrency"),
        ({"max_requests": 3}, "without --server there is no use for --max-requests"),
    ):
        with pytest.raises(UserError, match=said) as told:
            ServerOptions(**wrong).find()  # type: ignore[arg-type]
        assert "word" not in f"{told.value}{told.value.hint}".replace("PASSWORD", "")
    with pytest.raises(UserError, match="--engine vllm has no effect"):
        ServerOptions(server="http://a/v1").find("vllm")
    assert ServerOptions().find("vllm") is None
    assert json.dumps(ServerOptions(server="http://a/v1/").at("http://a/v1/").identity())
