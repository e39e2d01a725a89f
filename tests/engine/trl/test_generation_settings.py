"""A model's own generation settings change neither what training samples nor what can be saved."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from codea1_cli.engine.ranks import RankSpec
from codea1_cli.engine.rehearsal import rehearse_save
from codea1_cli.engine.run_setup import make_schedule
from codea1_cli.engine.trl.trainer import build_trainer
from codea1_cli.errors import RunFailed, UserError
from codea1_cli.models.loading import load_tokenizer, render
from codea1_cli.models.sampler import ModelRef, SamplingSettings
from codea1_cli.models.sampler_engines import TransformersSampler
from codea1_cli.recipe.batching import batches
from codea1_cli.recipe.files import load_recipe
from codea1_cli.tiny import model_path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
pytestmark = pytest.mark.filterwarnings("ignore")

CHAT = [{"role": "user", "content": "Add two numbers."}]

SETTINGS = {
    "flags": {"do_sample": False, "temperature": 0.9, "top_p": 0.6},
    "many": {
        "num_beams": 4, "min_p": 0.3, "no_repeat_ngram_size": 3, "typical_p": 0.2, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1,
        "repetition_penalty": 9.0, "length_penalty": 3.0, "min_new_tokens": 20, "max_new_tokens": 2, "max_time": 0.001,
        "suppress_tokens": [20, 21, 22], "begin_suppress_tokens": [23], "bad_words_ids": [[24]], "forced_eos_token_id": 30,
        "guidance_scale": 2.0, "num_return_sequences": 4, "return_dict_in_generate": True, "output_scores": True,
        "sequence_bias": [[[25], 9.0]], "remove_invalid_values": True, "renormalize_logits": True, "custom_thing": 1,
        "stop_strings": ["e"], "cache_implementation": "static", "prompt_lookup_num_tokens": 3,
    },
    "nonsense": {"num_beams": -1, "temperature": "hot", "max_new_tokens": -5},
}  # fmt: skip


def model(folder: Path, settings: dict | None, config: dict | None = None) -> str:
    shutil.copytree(str(model_path()), folder)
    for name, values in (("generation_config.json", settings), ("config.json", config)):
        file = folder / name
        if values is None and name == "generation_config.json":
            file.unlink()
        else:
            file.write_text(json.dumps(json.loads(file.read_text()) | (values or {})))
    return str(folder)


def trained(name: str, folder: Path, *overrides: str):
    recipe = load_recipe("tiny", [f"model={name}", "train.threads=1", *overrides])
    spec = RankSpec("code", 0, 1, None, 1, 0, str(folder), False)
    rollouts = SimpleNamespace(rank=SimpleNamespace(staleness=0), reward=lambda **_: [0.0], rollout=lambda *_: {})
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    return build_trainer(
        recipe, spec, batches(recipe, "code", 1), make_schedule(["p"] * 8, problems_per_step=8, epochs=1, seed=0),
        rollouts, load_tokenizer(name), folder / "out", {},
    )  # fmt: skip


def sampled(trainer) -> list[list[int]]:
    import torch

    torch.manual_seed(5)
    prompt = render(trainer.processing_class, CHAT)
    ids, _ = trainer._generate_single_turn([prompt] * 4, None, {}, 4)
    return [list(row) for row in ids]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> list[list[int]]:
    return sampled(trained("builtin:tiny", tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"num_hidden_layers": 9}, "missing in its weights"),  # transformers would make the others up
        ({"vocab_size": 10}, "embed_tokens.weight missing in its weights, or of another shape"),
        ({"model_type": "nosuch"}, "has model type `nosuch`"),
    ],
)
def test_weights_that_are_not_the_configuration_s_are_no_model(config, said, tmp_path):
    with pytest.raises(UserError, match=f"cannot load the model.*{said}"):
        trained(model(tmp_path / "model", SETTINGS["nonsense"], config), tmp_path)


@pytest.mark.parametrize(("name", "lora"), [*((name, False) for name in SETTINGS), ("many", True)])
def test_training_samples_alike_and_can_save(name, lora, plain, tmp_path):
    trainer = trained(model(tmp_path / "model", SETTINGS[name]), tmp_path, *(["lora.r=4"] if lora else []))
    assert sampled(trainer) == plain
    rehearse_save(trainer, tmp_path / "rehearsal", "code[0]")
    assert not (tmp_path / "rehearsal").exists()


@pytest.mark.parametrize("config", [{}, {"num_beams": 3, "temperature": 0.1, "min_length": 9}])
def test_so_do_settings_in_the_configuration(config, plain, tmp_path):
    trainer = trained(model(tmp_path / "model", None, config), tmp_path)
    assert sampled(trainer) == plain
    rehearse_save(trainer, tmp_path / "rehearsal", "code[0]")


def test_tokens_that_end_a_reply_are_taken_over(tmp_path):
    trainer = trained(model(tmp_path / "model", {"eos_token_id": [2, 7]}), tmp_path)
    assert sorted(trainer.eos_token_ids) == [2, 7]
    assert trainer.model.generation_config.eos_token_id == [2, 7]


@pytest.mark.parametrize("name", SETTINGS)
def test_evaluation_samples_alike(name, tmp_path):
    settings = SamplingSettings(n=2, temperature=0.9, top_p=0.95, max_new_tokens=16, seed=3)
    samplers = [
        TransformersSampler(ModelRef(path)) for path in (str(model_path()), model(tmp_path / "m", SETTINGS[name]))
    ]
    prompt = render(samplers[0].tokenizer, CHAT)
    first, second = (sampler.generate([prompt], settings) for sampler in samplers)
    assert first == second


def test_what_cannot_be_saved_is_found_by_the_rehearsal(tmp_path):
    trainer = trained("builtin:tiny", tmp_path)
    trainer.model.generation_config.update(do_sample=False, temperature=0.9)
    with pytest.raises(RunFailed, match="the policy cannot be saved: ValueError: GenerationConfig is invalid"):
        rehearse_save(trainer, tmp_path / "rehearsal", "code[0]")


def test_large_weights_are_not_written(tmp_path, monkeypatch):
    from codea1_cli.engine import rehearsal

    monkeypatch.setattr(rehearsal, "_WHOLE", 0)
    sizes = {}
    monkeypatch.setattr(rehearsal.shutil, "rmtree", lambda folder, **_: sizes.update(
        {file.name: file.stat().st_size for file in Path(folder).rglob("*.safetensors")}
    ))  # fmt: skip
    rehearse_save(trained("builtin:tiny", tmp_path), tmp_path / "rehearsal", "code[0]")
    assert sizes == {"model.safetensors": 0}
