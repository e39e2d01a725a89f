"""Samples depend on the model, the prompt and the seed, not on what was sampled beside them."""

import json
import sys
import types
import weakref
from collections import Counter

import pytest

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.models.loading import resolve_model
from codea1_cli.models.sampler import ModelRef, SamplingSettings, cut_at_stop, open_sampler, prompt_seed
from codea1_cli.models.sampler_engines import TransformersSampler, _picker
from codea1_cli.runs.policy_folders import find_model
from tests.cli.fake_run import weights

TINY = ModelRef(resolve_model("builtin:tiny"), label="builtin:tiny")


@pytest.fixture(scope="module")
def sampler():
    return open_sampler(TINY, "transformers")


def prompts(sampler, *texts):
    from codea1_cli.models.loading import render

    return [render(sampler.tokenizer, [{"role": "user", "content": text}]) for text in texts]


def test_a_sample_is_the_same_in_any_company(sampler):
    three = prompts(sampler, "Add two numbers.", "Reverse a list, and then sort it.", "Count the words of a text.")
    settings = SamplingSettings(n=3, temperature=0.9, top_p=0.95, max_new_tokens=24, seed=5)
    together = sampler.generate(three, settings)
    assert [len(texts) for texts in together] == [3, 3, 3]
    assert together[::-1] == sampler.generate(three[::-1], settings)
    assert together[1:2] == sampler.generate(three[1:2], settings)
    small = TransformersSampler(TINY, batch=2)
    assert small.generate(three, settings) == together
    assert sampler.generate(three, SamplingSettings(n=3, temperature=0.9, max_new_tokens=24, seed=6)) != together
    assert len({text for texts in together for text in texts}) > 3


def test_greedy_samples_are_one(sampler):
    ((first, second),) = sampler.generate(
        prompts(sampler, "Add two numbers."), SamplingSettings(n=2, max_new_tokens=16)
    )
    assert first == second
    assert first


def test_a_text_ends_before_a_stop_string(sampler):
    (prompt,) = prompts(sampler, "Add two numbers.")
    ((whole,),) = sampler.generate([prompt], SamplingSettings(max_new_tokens=24))
    stop = whole[4:7]
    ((cut,),) = sampler.generate([prompt], SamplingSettings(max_new_tokens=24, stop=("never there", stop)))
    assert cut == whole[: whole.index(stop)]
    assert cut_at_stop("abcd", ("d", "bc", "")) == "a"


def test_tokens_are_picked_by_their_probability():
    import torch

    logits = torch.log(torch.tensor([[0.05, 0.6, 0.1, 0.25]]))

    def counts(temperature, top_p, rows=4000):
        draws = torch.rand(rows, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        picked = _picker(draws, 0, temperature, top_p)(torch.zeros(rows, 0), logits.expand(rows, 4)).argmax(-1)
        return Counter(picked.tolist())

    plain = counts(1.0, 1.0)
    assert [abs(plain[i] / 4000 - p) < 0.03 for i, p in enumerate((0.05, 0.6, 0.1, 0.25))] == [True] * 4
    assert set(counts(1.0, 0.85)) == {1, 3}  # 0.6 + 0.25 reaches it
    assert set(counts(1.0, 0.5)) == {1}
    assert counts(0.5, 1.0)[1] > 3000  # 0.36 / (0.36 + 0.0625 + 0.01 + 0.0025)
    edge = torch.tensor([[0.0], [1.0 - 1e-16]], dtype=torch.float64)
    assert _picker(edge, 0, 1.0, 1.0)(torch.zeros(2, 0), logits.expand(2, 4)).argmax(-1).tolist() == [1, 0]


def test_what_made_the_samples_is_told(sampler):
    told = sampler.describe()
    assert (told["label"], told["engine"], told["dtype"], told["device"]) == (
        "builtin:tiny", "transformers", "float32", "cpu"
    )  # fmt: skip
    assert len(told["chat_template_hash"]) == 16
    assert set(told["versions"]) == {"torch", "transformers"}


def test_tokens_are_counted_and_a_closed_sampler_has_no_model():
    one = open_sampler(TINY, "transformers")
    short = prompts(one, "Write f.", "Write another function, which is called g and takes a list of numbers.")
    (greedy,), _ = one.generate(short[:1], SamplingSettings(max_new_tokens=5)), one.generate([], SamplingSettings())
    assert (one.tokens, len(greedy)) == (5, 1)
    texts = one.generate(short, SamplingSettings(2, 1.0, max_new_tokens=200))
    ended = [len(one.tokenizer(text, add_special_tokens=False)["input_ids"]) + 1 for row in texts for text in row]
    assert one.tokens == 5 + sum(min(count, 200) for count in ended)
    assert one.seconds > 0
    model = weakref.ref(one.model)
    one.close()
    assert model() is None


def test_vllm_gets_the_same_prompts_and_settings(monkeypatch):
    fake = types.ModuleType("vllm")
    calls = []

    class SamplingParams:
        def __init__(self, **settings):
            self.settings = settings

    class LLM:
        def __init__(self, model, **options):
            self.model, self.options = model, options

        def generate(self, prompts, settings, use_tqdm, **extra):
            calls.append((prompts, [each.settings for each in settings], extra))
            return [
                types.SimpleNamespace(outputs=[types.SimpleNamespace(text="r", token_ids=[7, 8])] * each.settings["n"])
                for each in settings
            ]

    fake.LLM, fake.SamplingParams = LLM, SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", fake)
    from codea1_cli.models.sampler_engines import VllmSampler

    sampler = VllmSampler(TINY)
    assert sampler.generate([[1, 2], [3]], SamplingSettings(3, 0.7, 0.95, 5, 9, ("\nX",))) == [["r"] * 3] * 2
    ((asked, each, extra),) = calls
    assert (asked, extra) == ([{"prompt_token_ids": [1, 2]}, {"prompt_token_ids": [3]}], {})
    assert [one["seed"] for one in each] == [prompt_seed([1, 2], 9), prompt_seed([3], 9)]
    assert each[0]["seed"] != each[1]["seed"]
    told = {key: each[0][key] for key in ("n", "temperature", "top_p", "max_tokens", "stop")}
    assert told == {"n": 3, "temperature": 0.7, "top_p": 0.95, "max_tokens": 5, "stop": ["\nX"]}
    assert sampler.generate([[1]], SamplingSettings(n=4)) == [["r"] * 4]
    assert calls[1][1][0]["n"] == 1
    assert sampler.tokens == 2 * (2 * 3 + 1)


@pytest.mark.parametrize("fault", [OSError, ValueError, RuntimeError, AssertionError])
def test_an_engine_that_cannot_be_made_is_a_users_error(monkeypatch, fault):
    fake = types.ModuleType("vllm")

    def engine(**options):
        raise fault("no room\nand more")

    fake.LLM = engine
    monkeypatch.setitem(sys.modules, "vllm", fake)
    from codea1_cli.models.sampler_engines import VllmSampler

    with pytest.raises(UserError, match=r"vLLM cannot load .*: no room$"):
        VllmSampler(TINY)


def test_an_engine_takes_no_more_than_is_free(monkeypatch):
    import torch

    from codea1_cli.models.sampler_engines import _share

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (40, 80))
    assert _share(0.85) == pytest.approx(0.475)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (79, 80))
    assert _share(0.85) == 0.85


def test_names_of_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_model("builtin:tiny") == TINY
    with pytest.raises(EnvironmentFault, match="the model owner/name is not here"):
        find_model("owner/name")
    with pytest.raises(UserError, match="no run in"):
        find_model(None)
    with pytest.raises(UserError, match="no run and no model"):
        find_model("nothing")
    with pytest.raises(UserError, match="no run, so it has no step"):
        find_model("builtin:tiny", step=3)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "builtin:tiny"}))
    assert find_model(str(adapter)) == ModelRef(TINY.path, str(adapter), "adapter")
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="base model"):
        find_model(str(adapter))


def test_a_runs_policy(tmp_path):
    from codea1_cli.recipe.files import load_recipe, recipe_text

    run = tmp_path / "one"
    for step in (2, 4):
        folder = run / "checkpoints" / f"step-{step:06d}"
        (folder / "code").mkdir(parents=True)
        (folder / "code" / "model.safetensors").write_bytes(weights(200))
        (folder / "COMMITTED").touch()
    (run / "recipe.yaml").write_text(recipe_text(load_recipe("tiny")))
    newest = find_model(None, runs_root=tmp_path)
    assert (newest.path, newest.step, newest.label) == (
        str(run / "checkpoints/step-000004/code"), 4, "one:code@4"
    )  # fmt: skip
    assert find_model("one", step=2, runs_root=tmp_path).path.endswith("step-000002/code")
    assert find_model(str(run), step=0).path == TINY.path
    with pytest.raises(UserError, match="no checkpoint of step 3"):
        find_model("one", step=3, runs_root=tmp_path)
    with pytest.raises(UserError, match="no weights of the test policy"):
        find_model("one", role="test", runs_root=tmp_path)
    (run / "checkpoints/step-000004/code/adapter_config.json").write_text("{}")
    assert find_model("one", runs_root=tmp_path) == ModelRef(
        TINY.path, str(run / "checkpoints/step-000004/code"), "one:code@4", str(run), 4
    )


def test_an_adapter_changes_what_is_sampled(tmp_path):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(TINY.path)
    model = get_peft_model(base, LoraConfig(r=4, init_lora_weights=False, target_modules="all-linear"))
    model.save_pretrained(tmp_path)
    prompt = [[5, 6, 7, 8]]
    settings = SamplingSettings(n=1, max_new_tokens=24)
    adapted = TransformersSampler(ModelRef(TINY.path, str(tmp_path)))
    assert adapted.generate(prompt, settings) != TransformersSampler(TINY).generate(prompt, settings)


def test_engines():
    with pytest.raises(UserError, match="unknown engine"):
        open_sampler(TINY, "other")
    with pytest.raises(UserError, match=r"vLLM (is not installed|needs a GPU)"):
        open_sampler(TINY, "vllm")
