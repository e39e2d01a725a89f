"""Chat templates of all kinds: with a system role, without one, and those that cannot be rendered."""

import shutil
from pathlib import Path

import pytest

from codea1_cli.errors import UserError
from codea1_cli.evals.evalplus.tasks import begun_answer
from codea1_cli.models.loading import check_model, load_tokenizer, render
from codea1_cli.tiny import model_path

CHAT = [{"role": "system", "content": "Reply with code."}, {"role": "user", "content": "Add two numbers."}]

TURN = "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
REFUSES = (
    "{% if messages[0]['role']=='system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    f"{{% for message in messages %}}{TURN}{{% endfor %}}"
)
ALTERNATES = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}" + TURN + "{% endfor %}"
)
USERS_ONLY = f"{{% for message in messages %}}{{% if message['role'] == 'user' %}}{TURN}{{% endif %}}{{% endfor %}}"
TAKES = f"{{% for message in messages %}}{TURN}{{% endfor %}}"
FORMS = {"refuses": REFUSES, "alternates": ALTERNATES, "users only": USERS_ONLY}


def model(folder: Path, template: str) -> str:
    shutil.copytree(str(model_path()), folder)
    (folder / "chat_template.jinja").write_text(template)
    return str(folder)


@pytest.mark.parametrize("form", FORMS)
def test_without_a_system_role_the_text_goes_in_front_of_the_user_s(form, tmp_path):
    name = model(tmp_path / "model", FORMS[form])
    check_model(name)
    tokenizer = load_tokenizer(name)
    text = tokenizer.decode(render(tokenizer, CHAT))
    assert text == "<|im_start|>user\nReply with code.\n\nAdd two numbers.<|im_end|>\n"
    longer = [*CHAT, {"role": "assistant", "content": "1"}, {"role": "user", "content": "More."}]
    assert tokenizer.decode(render(tokenizer, longer)).endswith("<|im_start|>user\nMore.<|im_end|>\n")


def test_a_template_that_tells_the_date_tells_the_same_every_day(tmp_path):
    tokenizer = load_tokenizer(model(tmp_path / "model", "{{ strftime_now('%d %b %Y, %H') }} " + TAKES))
    assert tokenizer.decode(render(tokenizer, CHAT)).startswith("26 Jul 2024, 00 ")
    assert begun_answer(tokenizer, "Add.").startswith("26 Jul 2024, 00 ")


def test_with_a_system_role_nothing_changes(tmp_path):
    tokenizer = load_tokenizer(model(tmp_path / "model", TAKES))
    text = tokenizer.decode(render(tokenizer, CHAT))
    assert text.startswith("<|im_start|>system\nReply with code.<|im_end|>\n<|im_start|>user\nAdd two numbers.")


def test_the_embedded_model_leaves_it_out_on_purpose():
    tokenizer = load_tokenizer("builtin:tiny")
    assert "Reply with code." not in tokenizer.decode(render(tokenizer, CHAT))


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ raise_exception('no') }}", "no"),
        ("{% for message in messages %}", "Unexpected end of template"),
        ("{{ messages[0]['role'].nothing() }}", "has no attribute 'nothing'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("always the same", "leaves out the user's message"),
        ("{{ messages[7]['content'] }}", "leaves out|no element 7|undefined"),
    ],
)
def test_what_cannot_be_rendered_is_refused_without_the_tokenizer_and_with_it(template, says, tmp_path):
    name = model(tmp_path / "model", template)
    for check in (check_model, load_tokenizer):
        with pytest.raises(UserError, match=says):
            check(name)
