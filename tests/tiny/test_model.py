"""The shipped model: small enough, loadable by its folder alone, and speaking the game's prompts."""

import pytest

from codea1_cli.problems.problem import read_problems
from codea1_cli.problems.prompts import code_messages, test_messages
from codea1_cli.tiny import model_path, problems_path
from world.corpus import documents

MAX_BYTES = 12 * 1024 * 1024


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_path())


@pytest.fixture(scope="module")
def model():
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_path(), dtype=torch.float32).eval()


def test_the_weights_fit_the_wheel():
    assert sum(path.stat().st_size for path in model_path().iterdir()) <= MAX_BYTES


def test_the_template_renders_the_games_prompts_without_the_system_message(tokenizer):
    row = read_problems(problems_path("heldout"))[0]
    for messages in (code_messages(row), test_messages(row, row.reference, 4), test_messages(row, None, 4)):
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert text == f"<|im_start|>user\n{messages[-1]['content']}<|im_end|>\n<|im_start|>assistant\n"


def test_the_template_renders_replies_and_multiple_turns(tokenizer):
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    assert text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"


def test_the_tokenizer_loses_nothing_and_keeps_digits_apart(tokenizer):
    for document in documents(200, seed=9):
        for text in (document.reply, document.messages[-1]["content"], "Grüße, 漢字 \t\n  end"):
            assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert len(tokenizer("1234", add_special_tokens=False)["input_ids"]) == 4


def test_pads_left_and_ends_with_the_turns_end(tokenizer, model):
    assert tokenizer.padding_side == "left"
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.config.vocab_size == len(tokenizer)


def test_replies_of_both_roles_are_short_and_end_by_themselves(tokenizer, model):
    import torch

    rows = read_problems(problems_path("heldout"), limit=8)
    chats = [code_messages(row) for row in rows] + [test_messages(row, row.meta["wrong"][0], 4) for row in rows]
    texts = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in chats]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    with torch.no_grad():
        out = model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=False, max_new_tokens=128
        )
    replies = out[:, inputs["input_ids"].shape[1] :]
    assert (replies == tokenizer.eos_token_id).any(dim=1).all()
    for number, reply in enumerate(tokenizer.batch_decode(replies, skip_special_tokens=True)):
        assert reply.startswith("```python\n")
        assert reply.endswith("\n```")
        assert ("def solve(" if number < len(rows) else "\nassert solve(") in reply
