"""`codea1 export`: a plain model folder from any checkpoint, whole or not at all."""

import json
import shutil

import pytest

from codea1_cli.cli.runs import export
from codea1_cli.recipe.files import recipe_text
from tests.cli.fake_run import make_run


def test_export_takes_the_newest_or_the_named_step_and_model_files_only(run, call, tmp_path):
    done = call(export, "first", "--role", "code", "--to", tmp_path / "new", "--json")
    assert done.code == 0
    assert (done.data["step"], done.data["merged_adapter"]) == (3, False)
    assert done.data["files"] == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
    assert json.loads((tmp_path / "new" / "config.json").read_text()) == {"step": 3, "role": "code"}
    (tmp_path / "empty").mkdir()
    assert call(export, "first", "--role", "test", "--to", tmp_path / "empty", "--step", "1").code == 0
    assert json.loads((tmp_path / "empty" / "config.json").read_text()) == {"step": 1, "role": "test"}
    assert (tmp_path / "empty" / "model.safetensors").stat().st_size == 1000


def test_the_card_says_what_the_policy_is_and_what_it_was_measured_at(run, call, tmp_path):
    rows = [{"problem_id": pid, "passed": [True, pid == "a"], "unscored": 0} for pid in "abcd"]
    (run.path / "evaluation").mkdir()
    (run.path / "evaluation" / "step-000002-code.json").write_text(json.dumps(rows))
    (run.path / "data").mkdir()
    (run.path / "data" / "README.md").write_text("# Mine: 4 problems\n")
    assert call(export, "first", "--role", "code", "--to", tmp_path / "new").code == 0
    card = (tmp_path / "new" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "- **base model**: builtin:tiny\n" in card
    assert "Held-out problems: 4, evaluated at step 2." in card
    assert "| pass@1 | 62.5 % | " in card
    assert "Write this function.\n\nQUESTION" in card
    assert "method: code-a1" in card
    assert "# Mine: 4 problems" in card
    assert call(export, "first", "--role", "test", "--to", tmp_path / "test", "--step", "1").code == 0
    card = (tmp_path / "test" / "README.md").read_text()
    assert "No held-out evaluation of the run is kept up to this step." in card
    assert "Write tests that break this solution." in card


def test_export_refuses_a_folder_in_use_and_leaves_it_alone(run, call, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    done = call(export, "first", "--role", "code", "--to", tmp_path / "mine")
    assert done.code == 2
    assert "not empty" in done.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert call(export, "first", "--role", "code", "--to", tmp_path / "mine" / "notes.txt").code == 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("first", "--role", "code", "--step", "9"), 2, "did you mean 3? there are 1, 2, 3"),
        (("frst", "--role", "code"), 2, "did you mean first?"),
        (("first", "--role", "judge"), 2, "--role"),
        (("first",), 2, "--role"),
    ],
)
def test_export_names_what_is_wrong(run, call, tmp_path, words, code, text):
    done = call(export, *words, "--to", tmp_path / "out")
    assert done.code == code
    assert text in done.err
    assert not (tmp_path / "out").exists()


def test_a_failed_export_leaves_nothing_behind(run, call, tmp_path, monkeypatch):
    def full(*_args, **_keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    done = call(export, "first", "--role", "code", "--to", tmp_path / "out")
    assert done.code == 3
    assert "No space left on device" in done.err
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_a_run_without_a_checkpoint_says_so(run, call, tmp_path):
    make_run(run.path.parent, "fresh", steps=0)
    done = call(export, "fresh", "--role", "code", "--to", tmp_path / "out")
    assert done.code == 2
    assert "no whole checkpoint yet" in done.err


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random model of a few thousand weights, with a tokenizer that has a chat template."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=32, num_key_value_heads=2, **sizes)).to(torch.bfloat16).save_pretrained(
        folder
    )
    words = Tokenizer(WordLevel({"<unk>": 0, "<eos>": 1, "a": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    return folder


def write_adapter(run, base):
    """Turns checkpoint 3's code policy into a LoRA adapter on `base`; gives the adapted model's logits on `PROMPT`."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    recipe = run.recipe().model_copy(update={"model": str(base)})
    run.recipe_file.write_text(recipe_text(recipe))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    folder = run.checkpoint(3) / "code"
    shutil.rmtree(folder)
    adapted.save_pretrained(folder)
    with torch.no_grad():
        return adapted(torch.tensor([[2, 1, 0, 2]])).logits


def test_an_adapter_is_merged_into_its_base_exactly(run, call, tmp_path, base):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    wanted = write_adapter(run, base)
    done = call(export, "first", "--role", "code", "--to", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert done.data["merged_adapter"]
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    with torch.no_grad():
        assert torch.allclose(merged(torch.tensor([[2, 1, 0, 2]])).logits, wanted, atol=1e-5)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template


def test_an_adapter_on_a_quantised_or_missing_base_is_refused(run, call, tmp_path, base):
    write_adapter(run, base)
    quantised = tmp_path / "quantised"
    shutil.copytree(base, quantised)
    config = json.loads((quantised / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (quantised / "config.json").write_text(json.dumps(config))
    for model, text in ((quantised, "quantised"), (tmp_path / "gone", "no model folder")):
        run.recipe_file.write_text(recipe_text(run.recipe().model_copy(update={"model": str(model)})))
        done = call(export, "first", "--role", "code", "--to", tmp_path / "out")
        assert done.code == 2
        assert text in done.err
        assert not [path for path in tmp_path.iterdir() if "out" in path.name]
