"""What this project asks of TRL's colocated vLLM engine beyond TRL's own settings.

TRL builds the engine inside its trainer. There is no setting for a seed per run, for a share of memory that follows
from what is free, or for a check that the weights arrived. This module adds the three at TRL's names
`vllm_generation.LLM`, `VLLMGeneration.sync_weights` and `VLLMGeneration._iter_named_params`, pinned by a test; and it
listens to vLLM's `LLM.generate` and `LLMEngine.step`, to hand over what has ended and to add what has come.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from codea1_cli.engine.ranks import RankSpec
from codea1_cli.errors import EnvironmentFault, RunFailed, UserError
from codea1_cli.methods.base import Ids, More
from codea1_cli.methods.registry import method_of
from codea1_cli.planning import HANDED_OVER, VLLM_OVERHEAD, VLLM_SEQUENCES, engines_part, find_shape
from codea1_cli.planning.costs import RankMemory, at_once, rank_memory
from codea1_cli.recipe.batching import Batches, batches
from codea1_cli.recipe.schema import Recipe

GRAPHS_ALONE = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
"""vLLM's compilation_config for CUDA graphs of decoding without compiled kernels."""


@contextlib.contextmanager
def engine_settings(recipe: Recipe, shape: Batches, spec: RankSpec, told: dict[str, Any]) -> Iterator[None]:
    """While a trainer is built: its engine gets its own seed and a share of the memory that is free just then.

    Args:
        spec: the rank that builds its trainer.
        told: receives what was chosen, for the log.
    """
    import torch
    from trl.generation import vllm_generation

    if not spec.use_vllm:
        yield
        return
    build: Callable[..., Any] = vllm_generation.LLM
    memory, there = rank_memory_there(recipe, spec.policy, shape, spec.ranks)
    # Its own updates come while the engine sleeps, if it does.
    training, least = (memory.idle if memory.sleeps else memory.training) - there, sum(memory.sampling.values())
    still = 0
    engines = 1
    policies = method_of(recipe).policies
    for other, ranks in spec.others:  # the other policy's training begins only when both engines are up
        its, already = rank_memory_there(recipe, other, batches(recipe, other, ranks), ranks)
        comes_later = policies.index(other) > policies.index(spec.policy)
        still += (its.smallest if its.sleeps else its.training) - (0 if comes_later else already)
        engines += comes_later and not its.sleeps

    fewest, most = VLLM_SEQUENCES

    def engine(**settings: Any) -> Any:
        free, total = torch.cuda.mem_get_info()
        share = engine_share(total, free, training, still, engines, least, recipe.sampling.vllm_memory, spec.label)
        told.update(vllm_share=share, free_gib=round(free / 2**30, 1), total_gib=round(total / 2**30, 1))
        settings |= {
            "gpu_memory_utilization": share,
            "seed": recipe.seed * 1009 + 503 * policies.index(spec.policy) + spec.rank,
            "max_num_seqs": max(fewest, min(most, at_once(recipe, spec.policy) // spec.ranks)),
            "enforce_eager": recipe.sampling.vllm_eager,
            **({} if recipe.sampling.vllm_compile else {"compilation_config": GRAPHS_ALONE}),
            "disable_log_stats": True,
            "generation_config": "vllm",  # not the model's own
        }
        return build(**settings)

    with patch.object(vllm_generation, "LLM", engine):
        yield


def rank_memory_there(recipe: Recipe, policy: str, shape: Batches, ranks: int) -> tuple[RankMemory, int]:
    """A rank's memory, and how many bytes of it are on its GPU before its engine comes up.

    Raises:
        UserError: the model's configuration does not describe a decoder.
    """
    model = find_shape(recipe.model_of(policy))
    if model is None:  # a hub id whose configuration was fetched a moment ago
        raise UserError(
            f"the shape of {recipe.model_of(policy)} is not known", hint="give a local folder: model=FOLDER"
        )
    memory = rank_memory(recipe, policy, model, shape, vllm=True, gpu=True)
    # Under FSDP2 the weights stay on the CPU until training begins; else they and CUDA are there already.
    sharded = recipe.train.sharding == "fsdp2" and ranks > 1
    return memory, memory.held["CUDA"] + (0 if sharded else memory.held["weights"])


class WeightCheck:
    """Compares, after each weight sync, what the trainer sent with what the engine holds: one sum a tensor.

    Tensors that the engine fuses (query, key and value; gate and up) are left out; norms, output and down projections
    and embeddings of every layer are compared, in the engine's precision.
    """

    def __init__(self, generation: Any, who: str) -> None:
        self.generation, self.who = generation, who
        self.sent: dict[str, Any] = {}
        self.compared = 0
        self._params = generation._iter_named_params
        self._sync = generation.sync_weights
        generation._iter_named_params = self.watched
        generation.sync_weights = self.sync

    def engine_parameters(self) -> dict[str, Any]:
        """The weights that vLLM samples with, by its own names."""
        return dict(self.generation.llm.llm_engine.model_executor.driver_worker.model_runner.model.named_parameters())

    def watched(self) -> Iterator[tuple[str, Any]]:
        """The trainer's parameters by name; notes the sum of each that vLLM takes as it is."""
        known = self.engine_parameters()
        for name, parameter in self._params():
            twin = known.get(name)
            if twin is not None and twin.shape == parameter.shape:
                self.sent[name] = _sum(parameter, twin.dtype)
            yield name, parameter

    def sync(self) -> None:
        """Syncs, then compares.

        Raises:
            RunFailed: a tensor differs, which would mean sampling from another policy than the one that learns.
        """
        import torch

        self.sent = {}
        self._sync()
        if not self.sent:
            raise RunFailed(f"{self.who}: no tensor of the vLLM engine has a name that the policy knows")
        known = self.engine_parameters()
        names = list(self.sent)
        ours = torch.stack([self.sent[name] for name in names])
        theirs = torch.stack([_sum(known[name], known[name].dtype) for name in names])
        wrong = (~torch.isclose(ours, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)).nonzero().flatten().tolist()
        if wrong:
            raise RunFailed(
                f"{self.who}: after the weight sync {len(wrong)} of {len(names)} tensors of vLLM differ from the "
                f"policy's, the first is {names[wrong[0]]}"
            )
        self.compared = len(names)
        self.sent = {}


def _sum(tensor: Any, dtype: Any) -> Any:
    import torch

    return tensor.detach().to(dtype).sum(dtype=torch.float32)


@contextlib.contextmanager
def as_they_end(
    trainer: Any, n: int, eos: int, take: Callable[[dict[int, list[Ids]]], None], more: More
) -> Iterator[None]:
    """While vLLM samples inside: `take` gets groups of n sequences by their number, as soon as all of a group have
    ended, several at a time while many are sampled. What is judged then is judged beside the sampling of the others,
    and little is left to be judged after it. Prompts of `more` join what is sampled, n times each, as if they had been
    the last of those asked for."""
    llm = trainer.vllm_generation.llm
    engine, first = llm.llm_engine, llm.request_counter.counter
    step, generate, settings = engine.step, llm.generate, dict[str, Any]()
    ended: dict[int, dict[int, Ids]] = {}
    whole: dict[int, list[Ids]] = {}

    def watched() -> Any:
        outputs = step()
        for output in outputs:
            if output.finished:
                place, row = divmod(int(output.request_id) - first, n)
                group = ended.setdefault(place, {})
                group[row] = list(output.outputs[0].token_ids) or [eos]
                if len(group) == n:
                    whole[place] = [group[row] for row in range(n)]
                    del ended[place]
        if whole and (n * len(whole) >= HANDED_OVER or engine.get_num_unfinished_requests() <= 4 * HANDED_OVER):
            take(dict(whole))
            whole.clear()
        if new := [{"prompt_token_ids": list(ids)} for ids in more() for _ in range(n)]:
            llm.enqueue(new, **settings)
        return outputs

    def noted(prompts: Any, **given: Any) -> Any:
        settings.update(given)
        return generate(prompts, **given)

    with patch.object(engine, "step", watched), patch.object(llm, "generate", noted):
        yield


def engine_share(
    total: int, free: int, training: int, still: int, engines: int, least: int, most: float, who: str
) -> float:
    """The share of a GPU's memory for one vLLM engine.

    Args:
        total, free: bytes of the GPU, before this engine.
        training: bytes that training will still take for this policy.
        still: bytes that another policy on this GPU will still take, its engine left out where it does not sleep.
        engines: engines that have to come up on this GPU, this one included.
        least: bytes that the engine needs, its workspace, which may turn out smaller, among them.
        most: upper bound, the recipe's `sampling.vllm_memory`.

    Raises:
        EnvironmentFault: less is left than the engine needs.
    """
    left = (free - training - still) / engines
    if left < least - VLLM_OVERHEAD:
        other = f", the other policy {still / 2**30:.1f}" if still else ""
        raise EnvironmentFault(
            f"{who}: {free / 2**30:.1f} GiB of the GPU are free, training needs {training / 2**30:.1f} of them{other}, "
            f"and vLLM at least {engines * least / 2**30:.1f}",
            hint="lower train.tokens_per_micro_batch or max_completion_tokens, give the policy more GPUs with "
            "train.sharding=fsdp2, or train an adapter (lora)",
        )
    return round(min(most, (least + engines_part(left - least, (training + still) / engines)) / total), 4)


def engine_line(label: str, chosen: dict[str, Any]) -> str:
    """What `engine_settings` told, for the terminal."""
    return (
        f"{label}: vLLM takes {chosen['vllm_share']:.0%} of the GPU's {chosen['total_gib']} GiB, "
        f"{chosen['free_gib']} were free, torch holds {chosen['held_gib']} now"
    )
