"""`codea1 export`: a plain model folder from any checkpoint, whole or not at all."""

import json
import os
import re
import shlex
import shutil

import pytest
from huggingface_hub import ModelCard

from codea1_cli.cli.runs import export
from codea1_cli.recipe.files import recipe_text
from tests.cli.fake_run import make_run
from tests.hub import PATIENT, faults_of_card


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


@pytest.mark.parametrize("place", ["model", "evaluation/code", "checkpoints/best"])
def test_a_runs_own_folder_takes_no_export(run, call, place):
    there = sorted(run.path.rglob("*"))
    done = call(export, "first", "--role", "code", "--to", run.path / place)
    assert done.code == 2
    assert f"{place} lies in the run first" in done.err
    assert sorted(run.path.rglob("*")) == there


def test_the_card_says_what_the_policy_is_and_what_it_was_measured_at(run, call, tmp_path):
    rows = [{"problem_id": pid, "passed": [True, pid == "a"], "unscored": 0} for pid in "abcd"]
    (run.path / "evaluation").mkdir()
    (run.path / "evaluation" / "step-000002-code.json").write_text(json.dumps(rows))
    (run.path / "data").mkdir()
    (run.path / "data" / "README.md").write_text("# Mine: 4 problems\n")
    assert call(export, "first", "--role", "code", "--to", tmp_path / "new").code == 0
    card = (tmp_path / "new" / "README.md").read_text()
    assert "- **base model**: `builtin:tiny`\n" in card
    assert "Held-out problems: 4, evaluated at step 2." in card
    assert "| pass@1 | 62.5 % | " in card
    assert "Write this function.\n\nQUESTION" in card
    assert "method: code-a1" in card
    assert "\n### Mine: 4 problems" in card
    assert call(export, "first", "--role", "test", "--to", tmp_path / "test", "--step", "1").code == 0
    card = (tmp_path / "test" / "README.md").read_text()
    assert "No evaluation of the run is kept up to this step." in card
    assert "Write tests that break this solution." in card
    odd = {"name": "a`b <img src=x>", "description": "```\n<script>"}
    run.recipe_file.write_text(recipe_text(run.recipe().model_copy(update=odd)))
    assert call(export, "first", "--role", "test", "--to", tmp_path / "odd").code == 0
    card = (tmp_path / "odd" / "README.md").read_text()
    assert "\n# Test LLM of the run `first`\n" in card
    assert "recipe `` a`b <img src=x> ``, seed" in card
    assert re.search(r"(?s)\n````yaml\n.*<script>.*\n````\n", card)


@pytest.mark.parametrize(
    ("changes", "head", "title"),
    [
        ({}, {"license": "apache-2.0", "tags": ["code", "codea1", "trl", "grpo"]}, "# Code LLM of"),
        ({"model": "me/base", "method": "sft"}, {"base_model": "me/base", "tags": ["code", "codea1", "trl", "sft"]}, "# Code"),
        ({"model": "/gone/base", "method": "self-play"}, {"tags": ["code", "codea1", "trl", "grpo"]}, "# Code and Test LLM"),
    ],
    ids=["tiny", "hub", "folder"],
)  # fmt: skip
def test_the_cards_metadata_is_what_the_hub_reads(run, call, tmp_path, changes, head, title):
    """A licence that is not known is left out, and a base model that is not on the hub."""
    run.recipe_file.write_text(recipe_text(run.recipe().model_copy(update=changes)))
    (run.path / "data").mkdir()
    (run.path / "data" / "card.json").write_text(json.dumps({"source": {"dataset": "them/problems"}}))
    assert call(export, "first", "--role", "code", "--to", tmp_path / "new").code == 0
    card = ModelCard.load(tmp_path / "new" / "README.md")
    always = {"library_name": "transformers", "pipeline_tag": "text-generation", "datasets": ["them/problems"]}
    assert card.data.to_dict() == always | head
    assert faults_of_card(card.content) == []
    assert f"\n{title}" in card.text
    assert ("As Test LLM, user" in card.text) == ("Test" in title)


def test_the_card_has_the_figures_of_its_role_beside_those_before(run, call, tmp_path):
    (run.path / "evaluation").mkdir()
    suite = {"exposed": True, "misstated": 1, "validity": 0.5, "correct": 1, "valid": 2, "asserts": 4, "unscored": 0}
    for step in (0, 2):
        rows = [{"problem_id": pid, "passed": [bool(step), pid == "a"], "unscored": 0} for pid in "abcd"]
        suites = [{"problem_id": pid, **suite, "exposed": pid == "a" or bool(step)} for pid in "abcd"]
        tasks = {pid: {"n": 2, "unscored": 0, "base": 1 + (step > 0)} for pid in "ab"}
        for part, content in (("code", rows), ("test", suites), ("humaneval", tasks)):
            (run.path / "evaluation" / f"step-{step:06d}-{part}.json").write_text(json.dumps(content))
    for role in ("code", "test"):
        assert call(export, "first", "--role", role, "--to", tmp_path / role).code == 0
    code, test = ((tmp_path / role / "README.md").read_text() for role in ("code", "test"))
    assert "| figure | before | value | 95 % interval |" in code
    assert "| pass@1 | 12.5 % | 62.5 % | " in code
    assert "Tasks of humaneval: 2, evaluated at step 2." in code
    assert "| base pass@1 | 50.0 % | 100.0 % | " in code
    assert "exposed" not in code.split("## Licence")[0]
    assert "| wrong programs exposed | 25.0 % | 100.0 % | " in test
    assert "pass@1" not in test
    assert "humaneval" not in test


def folders(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir() if "out" in path.name)


@pytest.fixture
def account(hub, tmp_path, monkeypatch):
    """The stand-in, with a token that is set; nothing of whose machine this is."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    for name, value in PATIENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("time.sleep", lambda _: None)
    hub.token = "hf_mine"
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    return hub


def test_a_push_lists_what_it_sends_and_sends_it_in_one_commit(run, call, tmp_path, account):
    done = call(
        export, "first", "--role", "code", "--to", tmp_path / "out", "--push", "me/coder", "--private", "--json"
    )
    assert done.code == 0, done.err
    url = f"{os.environ['HF_ENDPOINT']}/me/coder"
    assert done.data["pushed"] == url
    there = account.files["models/me/coder"]
    assert there.pop(".gitattributes")
    assert there == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert account.private == {"models/me/coder"}
    assert "sending 4 files (" in done.err
    assert f"to {url}, a new private repository:\n" in done.err
    assert "    3 kB  model.safetensors\n" in done.err
    assert 'AutoTokenizer.from_pretrained("me/coder")' in there["README.md"].decode()
    assert sum("/commit/" in one for one in account.asked) == 1
    assert account.asked[0] == "GET /api/whoami-v2"


def test_a_push_to_what_is_there_takes_other_weights_out(run, call, tmp_path, account):
    """A later shard of theirs would be loaded in place of ours."""
    account.add(
        "models/me/coder",
        {"model-00001-of-00002.safetensors": b"1", "model.safetensors.index.json": b"{}", "notes.md": b"-"},
    )
    done = call(export, "first", "--role", "code", "--to", tmp_path / "out", "--push", "me/coder")
    assert done.code == 0, done.err
    assert done.out.strip() == f"{os.environ['HF_ENDPOINT']}/me/coder"
    assert "a commit on what is there" in done.err
    assert set(account.files["models/me/coder"]) == {"notes.md", *(path.name for path in (tmp_path / "out").iterdir())}


@pytest.mark.parametrize(
    ("repo", "setting", "code", "said", "way_out"),
    [
        ("me/coder", {"HF_TOKEN": ""}, 3, "--push me/coder needs a token for", "settings/tokens"),
        ("me/coder", {"HF_TOKEN": "hf_wrong"}, 3, "does not know the token that is set", "hf auth login"),
        ("coder", {}, 2, "--push coder names no repository: its owner is missing", "OWNER/NAME"),
        ("me/co der", {}, 2, "--push me/co der names no repository", "OWNER/NAME"),
        ("me/a/b", {}, 2, "--push me/a/b names no repository", "OWNER/NAME"),
        ("me/coder", {"HF_HUB_OFFLINE": "1"}, 3, "HF_HUB_OFFLINE is set", "leave --push out"),
        ("me/coder", {"HF_ENDPOINT": "http://127.0.0.1:9"}, 3, "cannot send to me/coder: http://127.0.0.1:9 cannot be", "HF_ENDPOINT"),
        ("me/public", {}, 2, "already, and public", "another name"),
    ],
)  # fmt: skip
def test_what_hinders_a_push_is_told_before_anything_is_exported(
    run, call, tmp_path, account, monkeypatch, repo, setting, code, said, way_out
):
    account.add("models/me/public", {})
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    done = call(export, "first", "--role", "code", "--to", tmp_path / "out", "--push", repo, "--private")
    assert done.code == code
    (error,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert said in error
    assert way_out in done.err
    assert not folders(tmp_path)
    assert set(account.files) == {"models/me/public"}


@pytest.mark.parametrize(
    ("repo", "fault", "said"),
    [
        ("them/coder", {}, "does not let this token write to them/coder: not yours"),
        ("me/coder", {"/commit/": 403}, "does not let this token write to me/coder: because it is so"),
        ("me/coder", {"/preupload/": 404}, "has no me/coder, or takes no models"),
        ("me/coder", {"/commit/": 409}, "me/coder was changed by somebody else meanwhile: because it is so"),
        ("me/coder", {"/commit/": 500}, "cannot send to me/coder: because it is so"),
        ("me/coder", "cut", "cannot send to me/coder: http://127.0.0.1:"),
    ],
)
def test_what_ends_a_push_leaves_a_whole_export_and_says_how_to_go_on(run, call, tmp_path, account, repo, fault, said):
    if fault == "cut":
        account.fault, account.left = "cut", 10**6
    else:
        account.refuse = fault
    done = call(export, "first", "--role", "code", "--to", tmp_path / "out", "--push", repo)
    assert done.code == 3
    (error,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert said in error
    assert f"hf upload {repo} {shlex.quote(str(tmp_path / 'out'))}" in done.err
    assert folders(tmp_path) == ["out"]
    assert (tmp_path / "out" / "model.safetensors").stat().st_size == 3000
    assert set(account.files.get(f"models/{repo}", {})) <= {".gitattributes"}


def test_a_transfer_of_a_push_that_breaks_off_is_tried_again(run, call, tmp_path, account):
    account.fault, account.left = "cut", 2
    assert call(export, "first", "--role", "code", "--to", tmp_path / "out", "--push", "me/coder").code == 0
    assert "model.safetensors" in account.files["models/me/coder"]


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
        (("first", "--role", "code", "--private"), 2, "add --push OWNER/NAME"),
    ],
)
def test_export_names_what_is_wrong(run, call, tmp_path, words, code, text):
    done = call(export, *words, "--to", tmp_path / "out")
    assert done.code == code
    assert text in done.err
    assert not (tmp_path / "out").exists()


def test_a_damaged_model_is_named_and_not_exported(run, call, tmp_path):
    model = run.checkpoint(3) / "code" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-8])
    done = call(export, "first", "--role", "code", "--to", tmp_path / "out")
    assert done.code == 2
    assert "checkpoint 3 of run first is damaged: code/model.safetensors is truncated" in done.err
    assert "take another checkpoint: 1, 2" in done.err
    assert not (tmp_path / "out").exists()
    assert call(export, "first", "--role", "code", "--step", "2", "--to", tmp_path / "out").code == 0


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
