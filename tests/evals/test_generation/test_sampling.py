"""Sampling in rounds and at once, with a model that is told what to say."""

import json

import pytest

from codea1_cli.evals.test_generation.sampling import (
    chat_messages,
    fitting_prompt,
    sample_in_rounds,
    sample_suites,
    suite_prompts,
)
from codea1_cli.models.sampler import SamplingSettings
from tests.evals.test_generation.hand_made import ADD, NEG, SIGN, function

FUNCTIONS = [function(ADD), function(SIGN), function(NEG)]
GREEDY = SamplingSettings(n=1, max_new_tokens=64)


class Tokenizer:
    """A token a character; the chat as its contents between marks."""

    model_max_length = 10**30

    chat_template = "takes every role"

    def apply_chat_template(self, messages, tokenize=True, **_):
        text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        return [ord(c) for c in text] if tokenize else text


class Sampler:
    """Says how often it was asked, after `limit` calls nothing more."""

    def __init__(self, limit: int = 1000) -> None:
        self.tokenizer = Tokenizer()
        self.asked: list[list[str]] = []
        self.limit = limit

    def generate(self, prompts, settings):
        if len(self.asked) == self.limit:
            raise KeyboardInterrupt
        self.asked.append(["".join(map(chr, prompt)) for prompt in prompts])
        return [[f"assert {prompt.count('<assistant>')}"] for prompt in self.asked[-1]]


def test_the_chat_grows_by_reply_and_question():
    messages = chat_messages(FUNCTIONS[0], ["one", "two"])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "one assert" in messages[0]["content"]
    assert all(part in messages[1]["content"] for part in ("add", "What add does.", "return a + b"))
    assert messages[2]["content"] == "one"
    assert messages[3] == messages[5]
    assert "nother" in messages[3]["content"]


def test_all_functions_go_through_a_round_together(tmp_path):
    sampler = Sampler()
    steps = []
    found = sample_in_rounds(
        sampler, FUNCTIONS, 3, GREEDY, tmp_path / "s.jsonl", progress=lambda *parts: steps.append(parts)
    )
    assert [len(batch) for batch in sampler.asked] == [3, 3, 3]
    assert found == {name: ["assert 0", "assert 1", "assert 2"] for name in ("add", "sign", "neg")}
    assert steps[-1] == ("rounds", 9, 9)
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert [row["task_id"] for row in rows] == ["add", "sign", "neg"]


def test_what_was_interrupted_goes_on(tmp_path):
    file = tmp_path / "s.jsonl"
    whole = sample_in_rounds(Sampler(), FUNCTIONS, 3, GREEDY, tmp_path / "whole.jsonl", chunk=2)
    with pytest.raises(KeyboardInterrupt):
        sample_in_rounds(Sampler(limit=3), FUNCTIONS, 3, GREEDY, file, chunk=2)
    again = Sampler()
    assert sample_in_rounds(again, FUNCTIONS, 3, GREEDY, file, chunk=2) == whole
    assert sum(map(len, again.asked)) == 4  # five of nine replies were there
    silent = Sampler(limit=0)
    assert sample_in_rounds(silent, FUNCTIONS, 3, GREEDY, file) == whole


def test_a_long_chat_forgets_its_oldest_rounds():
    tokenizer = Tokenizer()
    bare = len(tokenizer.apply_chat_template(chat_messages(FUNCTIONS[0], [])))
    prompt = fitting_prompt(tokenizer, FUNCTIONS[0], ["x" * 5000, "later"], bare + 1000)
    text = "".join(map(chr, prompt))
    assert "xxx" not in text
    assert "later" in text
    assert "return a + b" in text
    assert fitting_prompt(tokenizer, FUNCTIONS[0], [], bare - 1) is None


def test_a_function_that_never_fits_gets_empty_replies(tmp_path):
    sampler = Sampler()
    found = sample_in_rounds(sampler, FUNCTIONS[:1], 2, GREEDY, tmp_path / "s.jsonl", context=100)
    assert found == {"add": ["", ""]}
    assert sampler.asked == []
    assert sample_suites(sampler, FUNCTIONS[:1], 8, GREEDY, tmp_path / "t.jsonl", context=100) == {"add": ""}


def test_suites_at_once_are_asked_as_in_training(tmp_path):
    sampler = Sampler()
    file = tmp_path / "s.jsonl"
    assert set(sample_suites(sampler, FUNCTIONS, 4, GREEDY, file, chunk=2)) == {"add", "sign", "neg"}
    assert [len(batch) for batch in sampler.asked] == [2, 1]
    assert "exactly 4 lines" in sampler.asked[0][0]
    assert "return a + b" in sampler.asked[0][0]
    assert sample_suites(Sampler(limit=0), FUNCTIONS, 4, GREEDY, file)["add"] == "assert 0"
    assert suite_prompts(Tokenizer(), FUNCTIONS, 4)[0] == [ord(c) for c in sampler.asked[0][0]]
