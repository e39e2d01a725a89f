import json

import pytest

from codea1_cli.errors import UserError
from codea1_cli.planning import TABLE, find_shape, shape_of_config
from codea1_cli.recipe.schema import Lora


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # the model cards' numbers
        ("Qwen2.5-Coder-0.5B", 494_032_768),
        ("Qwen2.5-Coder-1.5B", 1_543_714_304),
        ("Qwen2.5-Coder-3B", 3_085_938_688),
        ("Qwen2.5-Coder-7B", 7_615_616_512),
        ("SmolLM2-135M", 134_515_008),
    ],
)
def test_the_table_counts_as_the_cards_do(name, parameters):
    assert TABLE[name].parameters == parameters


def test_a_hub_id_is_found_with_and_without_instruct(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert (
        find_shape("Qwen/Qwen2.5-Coder-7B-Instruct") == find_shape("Qwen/Qwen2.5-Coder-7B") == TABLE["Qwen2.5-Coder-7B"]
    )
    assert find_shape("somebody/unheard-of") is None


def test_the_cache_comes_before_the_table(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--Qwen--Qwen2.5-Coder-7B" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    config = {
        "model_type": "qwen2",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "vocab_size": 100,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shape = find_shape("Qwen/Qwen2.5-Coder-7B")
    assert (shape.layers, shape.kv_heads, shape.head_size, shape.tied, shape.attention_bias) == (2, 4, 16, False, True)


def test_the_embedded_model_counts_as_torch_does():
    from safetensors import safe_open

    from codea1_cli.tiny import model_path

    with safe_open(model_path() / "model.safetensors", "np") as file:
        counted = 0
        for name in file.keys():  # noqa: SIM118
            size = 1
            for side in file.get_slice(name).get_shape():
                size *= side
            counted += size
    assert find_shape("builtin:tiny").parameters == counted


def test_lora_counts_inputs_and_outputs_of_each_projection():
    shape = TABLE["SmolLM2-135M"]
    assert shape.adapter_parameters(Lora(r=2, target_modules=["q_proj"])) == 30 * 2 * (576 + 576)
    assert shape.adapter_parameters(Lora(r=16)) < shape.parameters / 20


def test_another_architecture_is_one_error():
    with pytest.raises(UserError, match="does not describe a decoder"):
        shape_of_config({"model_type": "t5"}, "config.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON: Expecting property name"),
        ("\0", "not JSON"),
        ("[1]", "a list, not an object"),
        ("{}", "'hidden_size' is missing"),
        ('{"text_config": [1]}', "text_config is no object"),
        ('{"hidden_size": 8, "num_attention_heads": 0, "num_hidden_layers": 1}', "by zero"),
        ('{"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": "x"}', "invalid literal"),
    ],
)
def test_an_odd_config_is_named(tmp_path, text, says):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=says) as told:
        find_shape(str(tmp_path))
    assert str(tmp_path / "config.json") in str(told.value)
