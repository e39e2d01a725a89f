"""A broken file of a model is named, whatever is wrong with it, before anything is loaded."""

import json
import shutil
from pathlib import Path

import pytest

from codea1_cli.errors import UserError
from codea1_cli.models.loading import check_model, load_tokenizer, resolve_model
from codea1_cli.tiny import model_path

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 269060552\n"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(str(model_path()), tmp_path / "model"))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "generation_config.json"])
def test_a_pointer_of_git_lfs(folder, name):
    (folder / name).write_bytes(POINTER)
    with pytest.raises(UserError, match=f"{name} is a Git LFS pointer") as caught:
        resolve_model(str(folder))
    assert "git lfs pull" in caught.value.hint


def cut(data: bytes) -> bytes:
    return data[:-100]


BROKEN = {
    "empty": lambda data: b"",
    "cut off": cut,
    "longer": lambda data: data + b"0",
    "a page of HTML": lambda data: b"<html><body>404 Not Found</body></html>",
    "a long header": lambda data: b"\xff" * 8 + data[8:],
    "no JSON": lambda data: data[:8] + b"!" + data[9:],
    "a header alone": lambda data: data[: 8 + int.from_bytes(data[:8], "little")],
    "a list": lambda data: (2).to_bytes(8, "little") + b"[]",
    "no tensor": lambda data: (2).to_bytes(8, "little") + b"{}",
    "no places": lambda data: (9).to_bytes(8, "little") + b'{"a": 1} ',
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_weights(folder, how):
    file = folder / "model.safetensors"
    file.write_bytes(BROKEN[how](file.read_bytes()))
    with pytest.raises(UserError, match=r"model\.safetensors"):
        check_model(str(folder))


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    resolve_model(str(folder))
    with pytest.raises(UserError, match="holds no weights"):
        check_model(str(folder))


def test_no_tokenizer_or_a_template_that_is_no_text(folder):
    (folder / "chat_template.jinja").write_bytes(b"\xfe\x00\xff")
    with pytest.raises(UserError, match=r"chat_template\.jinja:1: not UTF-8"):
        check_model(str(folder), look=True)
    for file in folder.glob("token*"):
        file.unlink()
    for check in (check_model, load_tokenizer):
        with pytest.raises(UserError, match="holds no tokenizer"):
            check(str(folder))


def test_a_shard_that_is_missing(folder):
    shutil.copy(folder / "model.safetensors", folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors is missing"):
        resolve_model(str(folder))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\udcff"])
def test_broken_settings(folder, name, text):
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        resolve_model(str(folder))


def test_a_tokenizer_that_is_json_and_no_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Nothing"}}')
    for check in (check_model, load_tokenizer):
        with pytest.raises(UserError, match="cannot load the tokenizer"):
            check(str(folder))


def test_weights_of_another_model(folder):
    from safetensors.torch import load_file, save_file

    from codea1_cli.models.sampler import ModelRef
    from codea1_cli.models.sampler_engines import TransformersSampler

    tensors = load_file(folder / "model.safetensors")
    save_file({f"other.{name}": tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"its weights lack .* and \d+ more"):
        TransformersSampler(ModelRef(str(folder)))
