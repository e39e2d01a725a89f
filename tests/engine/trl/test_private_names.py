"""The names that TRL and transformers do not promise to keep: each one that is used is held to what it is used for."""

import ast
import inspect
import textwrap
from pathlib import Path

import pytest

import codea1_cli.engine as engine

pytestmark = pytest.mark.filterwarnings("ignore")

PINNED = {
    "_private",
    "_generate_single_turn",
    "_generate_and_score_completions",
    "_get_per_token_logps_and_entropies",
    "_prepare_inputs",
    "_buffered_inputs",
    "_last_loaded_step",
    "_metrics",
    "_save_checkpoint",
    "_iter_named_params",
}


def private_names_of_others() -> set[str]:
    """Every `x._name` in the engine whose x is neither `self` nor a module of the standard library."""
    found = set()
    for file in Path(engine.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
                continue
            owner = node.value.id if isinstance(node.value, ast.Name) else None
            if owner not in {"self", "os", "sys"} and not (
                owner is None and ast.unparse(node.value).startswith("self._arena")
            ):
                found.add(node.attr)
    return found


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_no_other_private_name_is_used():
    assert private_names_of_others() == PINNED


def test_ray_sets_its_handler_through_the_function_that_is_replaced():
    import ray

    connect = inspect.getsource(ray._private.worker.connect)
    init = inspect.getsource(ray._private.worker)
    assert "ray._private.utils.set_sigterm_handler(sigterm_handler)" in init
    assert "signal.signal(" not in connect + inspect.getsource(ray._private.worker.init)


def test_generate_single_turn_takes_prompt_ids_and_returns_ids_and_logprobs():
    from trl import GRPOTrainer

    assert parameters(GRPOTrainer._generate_single_turn)[:5] == [
        "self", "prompt_ids", "images", "multimodal_fields", "num_generations",
    ]  # fmt: skip
    source = inspect.getsource(GRPOTrainer._generate_single_turn)
    returned = [node for node in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(node, ast.Return)]
    assert [ast.unparse(node.value) for node in returned if node.value] == ["(completion_ids, logprobs)"]


def test_a_steps_rows_reach_trls_sampling_as_a_list_of_dictionaries():
    from trl import GRPOTrainer

    assert parameters(GRPOTrainer._generate_and_score_completions) == ["self", "inputs"]
    assert '[x["prompt"] for x in inputs]' in inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert "self._generate_and_score_completions(generation_batch)" in inspect.getsource(GRPOTrainer._prepare_inputs)


def test_log_probs_are_asked_for_by_ids_and_mask_and_stand_first_in_the_answer():
    from trl import GRPOTrainer

    assert parameters(GRPOTrainer._get_per_token_logps_and_entropies)[:6] == [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size",
    ]  # fmt: skip
    assert 'old_per_token_logps = inputs.get("old_per_token_logps")' in inspect.getsource(GRPOTrainer._compute_loss)


def test_a_rollout_s_micro_batches_are_a_new_list_of_which_each_step_takes_one():
    from transformers import Trainer
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._prepare_inputs)
    assert "self._buffered_inputs = [" in source
    assert "inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]" in source
    assert "self._prepare_inputs(inputs)" in inspect.getsource(Trainer.training_step)
    scored = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert scored.count("self._get_per_token_logps_and_entropies(") == 3
    assert "batch_size = self.args.per_device_train_batch_size if mode" in scored


def test_an_empty_micro_batch_meets_nothing_but_the_loss():
    """What `_prepare_inputs` returns goes to `compute_loss` alone, and what that returns is all that is learnt from."""
    from transformers import Trainer
    from trl import GRPOTrainer

    step = inspect.getsource(Trainer.training_step)
    assert "loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)" in step
    after = step.partition("self.compute_loss(model, inputs")[2]
    assert after.count("inputs") == after.count("del inputs") == 1
    assert "self.accelerator.backward(loss, **kwargs)" in after
    assert "inputs" not in inspect.getsource(GRPOTrainer.training_step).partition("super().training_step(")[2][30:]
    assert parameters(GRPOTrainer.compute_loss)[:3] == ["self", "model", "inputs"]


def test_gradients_are_summed_up_over_ranks_in_a_step_s_last_micro_batch():
    from transformers import Trainer

    source = inspect.getsource(Trainer._run_epoch)
    assert "or i == len(batch_samples) - 1" in source
    assert "sync_context = functools.partial(self.accelerator.no_sync, model=model)" in source


def test_what_each_loss_is_a_mean_over():
    """Of those that a recipe may name: which are weighted by rows, and that TRL gathers figures of as many rows."""
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._compute_loss)
    for loss in (
        "((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",
        "(per_token_loss * mask).sum() / (per_token_loss.size(0) * self.max_completion_length)",
        "(per_token_loss * mask).sum() / mask.sum().clamp(min=1.0)",
        "(per_token_loss * mask).sum() / normalizer",
    ):
        assert f"loss = {loss}\n" in source
    assert 'normalizer = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes' in source
    assert "self.accelerator.gather(masked_seq_mean(" in source
    assert "self.aux_loss_enabled = " in inspect.getsource(GRPOTrainer.__init__)


def test_a_step_s_figures_are_means_over_micro_batches_of_means_over_tokens():
    from trl import GRPOTrainer

    from codea1_cli.engine.trl.micro_batches import MEANS

    source = inspect.getsource(GRPOTrainer._compute_loss)
    for name in MEANS:
        assert f'self._metrics[mode]["{name}"].append(global_masked_mean(' in source
    assert "local_sum, local_count = (x * mask).sum(), mask.sum().float()" in source
    assert "sum(valid) / len(valid)" in inspect.getsource(GRPOTrainer.log)


def test_metrics_are_lists_by_name_of_what_training_logs():
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer)
    assert 'self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}' in source
    assert 'self._metrics[mode]["reward"].append(' in source


def test_what_a_masked_group_is_left_out_of():
    """The loss, the KL term and the token mean see `completion_mask`, and the mean is over `num_items_in_batch`."""
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    for name in ("advantages", "completion_mask", "num_items_in_batch", "tool_mask"):
        assert f'"{name}": {name}' in source or f'output["{name}"] = {name}' in source
    assert "num_items_in_batch = self.accelerator.gather(loss_mask.sum()).sum()" in source


def test_rewards_are_asked_for_with_the_completions_ids_by_name():
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._calculate_rewards)
    assert "completion_ids=completion_ids_list" in source
    assert "self.reward_funcs" in source
    assert "[*self.eos_token_ids, self._tokenizer.pad_token_id]" in inspect.getsource(GRPOTrainer)


def test_last_loaded_step_is_what_trl_compares_with_the_global_step():
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer)
    assert "self._last_loaded_step = -1" in source or "self._last_loaded_step = 0" in source
    assert "self.state.global_step != self._last_loaded_step" in source
    assert "self._last_loaded_step = self.state.global_step" in source


def test_save_checkpoint_takes_the_model_and_the_trial():
    from transformers import Trainer
    from trl import GRPOTrainer

    assert parameters(GRPOTrainer._save_checkpoint) == ["self", "model", "trial"]
    assert parameters(Trainer._save_checkpoint) == ["self", "model", "trial"]


def test_iter_named_params_yields_names_and_tensors_within_sync_weights():
    from trl.generation.vllm_generation import VLLMGeneration

    assert parameters(VLLMGeneration._iter_named_params) == ["self"]
    assert parameters(VLLMGeneration.sync_weights) == ["self"]
    assert "self._iter_named_params()" in inspect.getsource(VLLMGeneration.sync_weights)


def test_the_engine_is_built_at_the_name_that_is_replaced():
    from trl.generation import vllm_generation

    assert hasattr(vllm_generation, "LLM") or "import LLM" in inspect.getsource(vllm_generation)
    assert "LLM(" in inspect.getsource(vllm_generation.VLLMGeneration)
