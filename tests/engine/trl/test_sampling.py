import gc
import random
from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.engine.trl.objective import charge_truncated, mask_flat
from codea1_cli.engine.trl.sampling import beside_training, make_sampler, sample_by_prompt, sample_groups
from codea1_cli.recipe.files import load_recipe

EOS = 9


class Tokenizer:
    eos_token_id = EOS


class FakeTrainer:
    """Samples the prompt's length, sample number and chunk; every third completion is empty."""

    processing_class = Tokenizer()
    use_vllm = False

    def __init__(self, scored):
        self.calls, self.scored = [], scored

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations):
        assert images is None
        assert multimodal_fields == {}
        self.calls.append(prompt_ids)
        ids = [[len(p), row] if row % 3 else [] for row, p in enumerate(prompt_ids)]
        return ids, [[-0.5] * len(i) for i in ids] if self.scored else None


@given(
    lengths=st.lists(st.integers(1, 30), max_size=12),
    n=st.integers(1, 4),
    chunk=st.integers(1, 20),
    scored=st.booleans(),
)
def test_every_prompt_gets_its_own_completions_whatever_the_chunks(lengths, n, chunk, scored):
    trainer, seen = FakeTrainer(scored), []
    prompts = [[1] * length for length in lengths]
    completions, logprobs = sample_groups(
        trainer, prompts, n, chunk=chunk, on_chunk=lambda part, groups: seen.extend(zip(part, groups, strict=True))
    )
    assert [len(group) for group in completions] == [n] * len(prompts)
    for length, group in zip(lengths, completions, strict=True):
        assert all(ids == [EOS] or ids[0] == length for ids in group)
    assert dict(seen) == dict(enumerate(completions))
    assert all(len(call) <= max(chunk, n) for call in trainer.calls)
    if scored and prompts:
        assert [[len(s) for s in group] for group in logprobs] == [[len(i) for i in group] for group in completions]
    else:
        assert logprobs is None


class LLM:
    """vLLM's `LLM`: requests are numbered as they come, each step some of them end, in an order of their own, and what
    `generate` returns is sorted by number, whatever was enqueued meanwhile."""

    def __init__(self, random, before):
        self.llm_engine, self.request_counter = self, SimpleNamespace(counter=before)
        self.random, self.open, self.asked, self.settings, self.steps = random, [], [], [], 0

    def enqueue(self, prompts, sampling_params=None, use_tqdm=True):
        self.settings.append((sampling_params, use_tqdm))
        for prompt in prompts:
            tokens, number = prompt["prompt_token_ids"], self.request_counter.counter
            request = SimpleNamespace(request_id=str(number), finished=True)
            row = len(self.asked)
            request.outputs = [SimpleNamespace(token_ids=(len(tokens), row) if row % 3 else ())]
            self.open.append(request)
            self.asked.append(tokens)
            self.request_counter.counter += 1

    def get_num_unfinished_requests(self):
        return len(self.open)

    def step(self):
        self.steps += 1
        self.random.shuffle(self.open)
        count = self.random.randint(0, len(self.open))
        outputs, self.open = self.open[:count], self.open[count:]
        return outputs

    def generate(self, prompts, sampling_params, use_tqdm):
        self.enqueue(prompts, sampling_params, use_tqdm)
        outputs = []
        while self.open:
            outputs += self.llm_engine.step()
        return sorted(outputs, key=lambda output: int(output.request_id))


class VLLMTrainer(FakeTrainer):
    """As TRL samples with vLLM: one request a row, and what `LLM.generate` returns."""

    use_vllm = True

    def __init__(self, random, before):
        super().__init__(True)
        self.vllm_generation = SimpleNamespace(llm=LLM(random, before))

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations):
        self.calls.append(prompt_ids)
        prompts = [{"prompt_token_ids": ids} for ids in prompt_ids]
        outputs = self.vllm_generation.llm.generate(prompts, sampling_params="as TRL says", use_tqdm=False)
        ids = [list(output.outputs[0].token_ids) for output in outputs]
        return ids, [[-0.5] * len(i) for i in ids]


@given(
    lengths=st.lists(st.integers(1, 30), max_size=40),
    late=st.lists(st.lists(st.integers(1, 30), max_size=5), max_size=6),
    n=st.integers(1, 4),
    chunk=st.none() | st.integers(1, 60),
    before=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_groups_that_vllm_has_ended_are_handed_over_once_and_as_they_are(lengths, late, n, chunk, before, seed):
    trainer, seen, coming = VLLMTrainer(random.Random(seed), before), [], list(late)
    joined = []

    def more():
        new = coming.pop(0) if coming else []
        joined.extend(new)
        return [[1] * length for length in new]

    prompts = [[1] * length for length in lengths]
    completions, logprobs = sample_groups(
        trainer,
        prompts,
        n,
        chunk=chunk,
        on_chunk=lambda part, groups: seen.extend(zip(part, groups, strict=True)),
        more=more,
    )
    lengths = [*lengths, *joined]
    assert len(completions) == len(lengths)
    assert sorted(place for place, _ in seen) == list(range(len(lengths)))
    assert dict(seen) == dict(enumerate(completions))
    for length, group, scores in zip(lengths, completions, logprobs or [], strict=bool(prompts)):
        assert len(group) == n
        assert all(ids == [EOS] or ids[0] == length for ids in group)
        assert [len(ids) for ids in group] == [len(row) for row in scores]
    llm = trainer.vllm_generation.llm
    assert set(llm.settings) <= {("as TRL says", False)}, "what joins is sampled as the others"
    assert {"step", "generate"}.isdisjoint(vars(llm)), "the engine is as it was"
    if chunk is None:
        assert len(trainer.calls) == bool(prompts)


@pytest.mark.parametrize("vllm", [True, False])
def test_no_garbage_is_collected_while_vllm_samples(vllm):
    trainer, seen = FakeTrainer(True), []
    trainer.use_vllm, single = vllm, trainer._generate_single_turn
    trainer._generate_single_turn = lambda *asked: seen.append(gc.isenabled()) or single(*asked)
    sample_groups(trainer, [[1]], 1, chunk=None)
    trainer._generate_single_turn = lambda *_: seen.append(gc.isenabled())
    with pytest.raises(TypeError):
        sample_groups(trainer, [[1]], 1, chunk=None)
    assert seen == [not vllm, not vllm]
    assert gc.isenabled()


def test_vllm_hands_over_several_groups_while_many_are_sampled_and_each_of_the_last_ones_at_once(monkeypatch):
    monkeypatch.setattr("codea1_cli.engine.trl.vllm_engine.HANDED_OVER", 4)
    trainer, when = VLLMTrainer(random.Random(1), 0), []
    llm = trainer.vllm_generation.llm
    llm.random = SimpleNamespace(shuffle=lambda _: None, randint=lambda *_: 2)  # a group a step, in order
    sample_groups(trainer, [[1]] * 20, 2, chunk=None, on_chunk=lambda part, _: when.append((len(llm.open), len(part))))
    assert [count for _, count in when] == [2] * 6 + [1] * 8, "40 sequences; at 16 unfinished ones nothing waits"
    assert [left for left, count in when if count == 1] == [14, 12, 10, 8, 6, 4, 2, 0]


def test_a_prompts_samples_depend_on_the_step_and_on_nothing_that_came_before():
    import torch

    def trainer(step):
        def single(prompts, images, fields, n):
            return [torch.randint(1 << 30, (2,)).tolist() for _ in prompts], None

        made = SimpleNamespace(_generate_single_turn=single, state=SimpleNamespace(global_step=step))
        sample_by_prompt(made, 5)
        return made

    def sampled(one, *prompts):
        return one._generate_single_turn([list(prompt) for prompt in prompts], None, {}, 1)[0]

    whole = trainer(1)
    first = sampled(whole, (1, 2), (3,), (3,))
    assert first[1] != first[2]
    assert sampled(whole, (3,)) != first[1:2]  # once more in the same step
    whole.state.global_step = 2
    with beside_training(whole, 0):
        sampled(whole, (3,))
    second = sampled(whole, (1, 2), (3,))
    assert second != first[:2]
    resumed, other_rank = trainer(2), trainer(2)
    assert sampled(resumed, (1, 2), (3,)) == second
    assert sampled(other_rank, (3,)) == second[1:]


def test_what_does_not_fit_in_a_gpus_memory_is_sampled_in_halves(monkeypatch):
    import contextlib

    import torch
    from transformers import GenerationConfig
    from trl.models import utils

    tried = []

    def generate(input_ids, **_):
        tried.append(len(input_ids))
        if len(input_ids) > 2:
            raise torch.cuda.OutOfMemoryError
        return torch.cat([input_ids, input_ids[:, -1:] + 1, torch.full((len(input_ids), 1), EOS)], dim=1)

    @contextlib.contextmanager
    def unwrapped(model, accelerator):
        yield model

    def pad(rows, **_):
        ids = torch.tensor(rows["input_ids"])
        return SimpleNamespace(to=lambda device: {"input_ids": ids})

    monkeypatch.setattr(utils, "unwrap_model_for_generation", unwrapped)
    trainer = SimpleNamespace(
        processing_class=SimpleNamespace(pad=pad),
        accelerator=SimpleNamespace(device="cpu"),
        model_wrapped=SimpleNamespace(generate=generate),
    )
    make_sampler(trainer, load_recipe("tiny"), "code", GenerationConfig(eos_token_id=[EOS], pad_token_id=0))
    found, scores = trainer._generate_single_turn([[n, n] for n in range(5)], None, {}, 1)
    assert (found, scores) == ([[n + 1, EOS] for n in range(5)], None)
    assert tried == [5, 2, 3, 1, 2]


def test_a_reply_that_was_cut_off_earns_nothing_and_an_unscored_one_stays_so():
    rewards = [0.7, 0.7, -0.2, None, 0.5]
    ids = [[1, EOS], [1, 2], [1, 2], [1, 2], [1, 0]]  # 0 pads
    trainer = SimpleNamespace(
        reward_funcs=[lambda **columns: rewards],
        eos_token_ids=[EOS],
        processing_class=SimpleNamespace(pad_token_id=0),
    )
    charge_truncated(trainer)
    assert trainer.reward_funcs[0](prompts=[], completion_ids=ids) == [0.7, 0.0, -0.2, None, 0.5]


@pytest.mark.parametrize(
    ("groups", "left"),
    [([2], [0, 0, 1, 1, 0, 0]), ([2, 4], [0, 0, 1, 1, 1, 1]), ([1, 2, 3], [0, 1, 1, 1, 1, 1])],
)
def test_groups_without_an_advantage_are_left_out_of_the_loss(groups, left):
    import torch

    class Trainer:
        _metrics = {"train": defaultdict(list)}  # noqa: RUF012
        accelerator = SimpleNamespace(gather=lambda one: one)

        def _generate_and_score_completions(self, rows):
            return {
                "advantages": torch.tensor([0.0, 1e-9, 1.0, -1.0, 0.0, 0.0]),
                "completion_mask": torch.tensor([[1, 1]] * 5 + [[1, 0]]),
                "tool_mask": torch.tensor([[1, 0]] * 6),
                "num_items_in_batch": torch.tensor(6),
            }

    trainer = Trainer()
    mask_flat(trainer, groups)
    found = trainer._generate_and_score_completions([])
    assert found["completion_mask"].tolist() == [[one, one * (row < 5)] for row, one in enumerate(left)]
    assert found["num_items_in_batch"] == sum(left)
    assert trainer._metrics["train"]["flat_masked"] == [pytest.approx(1 - sum(left) / 6)]
