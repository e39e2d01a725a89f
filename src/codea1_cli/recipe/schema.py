"""The recipe: everything that decides a run, in one torch-free pydantic model.

A recipe is a YAML file (a shipped name such as `tiny`, or a path) plus `dotted.key=value` overrides. Whatever can be
derived from it (rows per step, micro-batches, optimizer steps) is derived in `codea1_cli.recipe.batching`, never asked.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from codea1_cli.evals.registry import names as benchmark_names
from codea1_cli.game.rules import MOST, Game, Positive, Range, Share
from codea1_cli.methods.registry import DEFAULT, ROLES, check_method, without_ignored
from codea1_cli.methods.sft import Pairs, Rate, Warmup
from codea1_cli.recipe.data_options import Options, SourceOptions, read_options
from codea1_cli.sandbox.make import SandboxSection
from codea1_cli.trackers import Trackers


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True, protected_namespaces=())


class DataSource(Section):
    """Where training data comes from: prepare-data's SOURCE as `name`, and its options by their flags' names."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    name: str = Field(description="prepare-data's SOURCE, such as kodcode, mbpp or a hub id; beside it, its options")

    @model_validator(mode="after")
    def _known_options(self) -> DataSource:
        self.options()
        return self

    def options(self) -> tuple[SourceOptions, Options]:
        """prepare-data's options."""
        return read_options(self.model_extra or {})


class Data(Section):
    train: str | None = Field(None, description="problems: a .jsonl, .jsonl.gz or .parquet file, or builtin:tiny/train")
    source: DataSource | None = Field(None, description="where they come from when `train` is null; made on first use")
    heldout: str | None = Field(None, description="evaluated, not trained on; null: the val part of `source`, or none")
    limit: Positive | None = Field(None, description="use only the first N training problems")
    solve_rate: Range | None = Field(
        None,
        description="[least, most]: train on problems of which the Code LLM, as it starts, solves that share of "
        "game.n_code samples; a row's own `solve_rate` is taken where there is one",
    )
    leave_flat: Positive | None = Field(
        None, description="a problem leaves after so many steps in a row with equal rewards"
    )
    expects: str | None = Field(None, description="what data the recipe is meant for, shown where it names none")


class JudgeSection(Section):
    float_tolerance: Annotated[float, Field(ge=0.0)] = Field(1e-6, description="absolute and relative, also inside")
    time_limit_s: Annotated[float, Field(gt=0.0)] = Field(
        2.0, description="seconds for one call at most; quick references allow less processor time"
    )
    memory_mb: Annotated[int, Field(ge=64, le=MOST)] = Field(1024, description="address space of a candidate")
    workers: Positive | None = Field(None, description="programs at once; null: one per CPU core, 8 at a service")
    max_unscored: Share = Field(0.5, description="share of unscored candidates above which a step stops the run")


class Optim(Section):
    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-6
    warmup_steps: Annotated[int, Field(ge=0, le=MOST)] = Field(10, description="in steps of the run (rollouts)")
    lr_scheduler: Literal["cosine", "linear", "constant"] = "cosine"
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.1
    adam_beta2: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.999
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    epsilon_low: Annotated[float, Field(gt=0.0)] = Field(0.20, description="clip below 1")
    epsilon_high: Annotated[float, Field(gt=0.0)] = Field(0.28, description="clip above 1")
    dual_clip: Annotated[float, Field(gt=1.0)] | None = Field(10.0, description="upper bound of the ratio (TRL: delta)")
    kl: Annotated[float, Field(ge=0.0)] = Field(0.001, description="weight of the KL to the start model (TRL: beta)")
    loss: Literal["dapo", "grpo", "bnpo", "dr_grpo"] = Field("dapo", description="dapo: the whole batch's token mean")
    scale_rewards: Literal["group", "batch", "none"] = "group"
    mask_truncated: bool = Field(
        False, description="leave replies that were cut off at their limit out of the loss; their rewards still count"
    )
    charge_truncated: bool = Field(
        False, description="a reply that was cut off at its limit earns 0, or less where it would have earned less"
    )
    mask_flat: bool = Field(False, description="leave groups whose replies all earn the same out of the loss")


class Train(Section):
    problems_per_step: Positive = Field(256, description="problems that a step learns from")
    spare_problems: Annotated[int, Field(ge=0, le=MOST)] = Field(
        0, description="further problems that a step samples; groups whose rewards differ are learnt from first"
    )
    staleness: Annotated[int, Field(ge=0, le=1)] = Field(
        0, description="1: the Code LLM samples a step ahead, while the Test LLM writes suites against the last one's"
    )
    updates_per_step: Positive = Field(2, description="optimizer steps per rollout")
    equal_budget: bool = Field(False, description="self-play: optimizer steps as code-a1's two policies together")
    epochs: Positive = 3
    max_steps: Positive | None = Field(
        None, description="length in steps; null: epochs x problems / problems sampled per step"
    )
    precision: Literal["auto", "bf16", "fp32"] = Field(
        "auto",
        description="of forward and backward; parameters and optimizer stay fp32. "
        "auto: bf16 on GPUs and on CPUs with instructions for it, else fp32; settled when a run begins",
    )
    gradient_checkpointing: bool = True
    sharding: Literal["ddp", "fsdp2"] = Field(
        "ddp", description="ddp: every rank holds the whole policy; fsdp2: ranks share parameters and optimizer"
    )
    tokens_per_micro_batch: Positive = Field(
        16_384,
        description="padded tokens of one forward pass on one rank, at the most; a micro-batch has as many rows as fit",
    )
    threads: Positive | None = Field(
        None,
        description="CPU threads per rank; null: the cores, shared by the ranks; both of two cores for one rank a side",
    )

    @property
    def problems_sampled(self) -> int:
        """Problems of a step, the spare ones too."""
        return self.problems_per_step + self.spare_problems


class Sampling(Section):
    engine: Literal["auto", "transformers", "vllm"] = Field("auto", description="auto: vLLM where it is, on a GPU")
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=MOST)] = 0
    chunk: Positive | None = Field(
        None,
        description="sequences sampled together, judged while the next chunk is sampled; null: 256, with vLLM 4096, "
        "judged as they end",
    )
    seed_by_prompt: bool = Field(
        False,
        description="sample each prompt alone, by a seed of its own: slow, and the same text on any number of ranks",
    )
    vllm_memory: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(0.8, description="vLLM's largest share of a GPU")
    vllm_eager: bool = Field(False, description="no compilation and no CUDA graphs: up in seconds, slower sampling")
    vllm_compile: bool = Field(
        True, description="compiled kernels beside CUDA graphs; false: CUDA graphs alone, up a minute or more sooner"
    )
    vllm_sleep: bool = Field(False, description="free vLLM's memory while the policy is updated")
    importance_correction: bool = Field(True, description="correct for what vLLM's and the trainer's log-probs differ")


class Role(Section):
    model: str | None = Field(None, description="overrides `model` for this policy")
    gpus: int | list[int] | None = Field(
        None, description="its slice: a count or explicit ids; null: an even share of what there is"
    )
    ranks: Positive | None = Field(None, description="data-parallel ranks; null: one per GPU, one on a CPU")
    max_prompt_tokens: Positive = 4096
    max_completion_tokens: Positive = 4096
    learning_rate: Rate | None = Field(None, description="overrides optim.learning_rate for this policy")
    weight: Annotated[float, Field(ge=0.0)] = Field(1.0, description="self-play: factor of this role's advantages")


class TestRole(Role):
    max_prompt_tokens: Positive = 8192


class Lora(Section):
    r: Positive = 16
    alpha: Positive = 32
    dropout: Share = 0.0
    target_modules: list[str] | Literal["all-linear"] = "all-linear"


class Checkpoint(Section):
    every: Positive | None = Field(
        50,
        description="steps between checkpoints; the last step is always one. null: none at all, for runs of which only "
        "the figures are wanted: nothing to resume from or to export",
    )
    keep: Positive = Field(2, description="whole checkpoints kept, the newest always among them")


class Eval(Section):
    every: Positive | None = Field(
        None, description="steps between evaluations; null: only before the first and after the last step"
    )
    before: bool = Field(True, description="evaluate before the first step too")
    targets: str | None = Field(
        None,
        description="a run whose wrong programs this one is measured on too, its folder (such as runs/first): figures "
        "of suites can only be compared on the same ones; null: the first policy's own wrong solutions",
    )
    n: Positive = Field(8, description="solutions sampled per problem")
    limit: Positive | None = Field(None, description="use only the first N held-out problems")
    wrong_per_problem: Positive = Field(4, description="wrong programs per problem, and near misses, each with a suite")
    benchmarks: list[str] = Field(
        default_factory=list,
        description="benchmarks run on the policies themselves: "
        + "; ".join(f"{', '.join(benchmark_names(role))} on the {role.title()} LLM" for role in ROLES),
    )
    benchmark_data: str | None = Field(None, description="their file or folder; null: CODEA1_BENCHMARKS, or fetched")
    benchmark_every: Positive | None = Field(None, description="null: as `every`; always before the first and the end")
    benchmark_n: Positive = Field(32, description="solutions sampled per task")
    benchmark_temperature: Annotated[float, Field(gt=0.0)] = 0.7
    benchmark_top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95
    benchmark_limit: Positive | None = Field(None, description="only N tasks; null: all, of ult 64 functions")
    benchmark_python: str | None = Field(None, description="interpreter for their programs; null: the one of codea1")
    best: str | None = Field(None, description="figure of the best checkpoint: humaneval/plus/pass@1, heldout/pass@1")

    @model_validator(mode="after")
    def _best_is_measured(self) -> Eval:
        for name in self.benchmarks:
            if name not in benchmark_names():
                raise ValueError(f"benchmarks: unknown benchmark {name!r}; there are {', '.join(benchmark_names())}")
        if len(set(self.benchmarks)) < len(self.benchmarks):
            raise ValueError(f"benchmarks names one twice: {', '.join(self.benchmarks)}")
        if self.best is not None:
            chosen, _, key = self.best.partition("/")
            if not key or chosen not in ("heldout", *self.benchmarks):
                raise ValueError(
                    f"best={self.best} is no figure of this run: heldout/pass@1, or one of a set in benchmarks, "
                    "such as humaneval/plus/pass@1"
                )
        return self


class Preflight(Section):
    enabled: bool = Field(
        True, description="a few samples of both sides before the first step; stops where they speak against the run"
    )
    problems: Positive = Field(4, description="problems tried")
    samples: Positive = Field(2, description="candidates per problem and suites per candidate")


class Faults(Section):
    deadline_s: Annotated[float, Field(gt=0.0)] = Field(
        3600.0,
        description="longest time a rank may go without progress, building included; processes have 600 s to start",
    )
    tracker_s: Annotated[float, Field(gt=0.0)] = Field(300.0, description="longest time a tracker may take")


class Recipe(Section):
    name: str = "custom"
    description: str = ""
    model: str = Field(description="hub id, local folder, or builtin:tiny; both policies start from it")
    method: Annotated[str, AfterValidator(check_method)] = Field(DEFAULT, description="a name of docs/methods.md")
    seed: Annotated[int, Field(ge=-MOST, le=MOST)] = 0
    data: Data = Field(default_factory=Data)
    game: Game = Field(default_factory=Game)
    judge: JudgeSection = Field(default_factory=JudgeSection)
    sandbox: SandboxSection = Field(default_factory=SandboxSection)
    train: Train = Field(default_factory=Train)
    optim: Optim = Field(default_factory=Optim)
    sampling: Sampling = Field(default_factory=Sampling)
    code: Role = Field(default_factory=Role)
    test: TestRole = Field(default_factory=TestRole)
    sft: Pairs = Field(default_factory=Pairs)
    warmup: Warmup | None = Field(None, description="fine-tunes the policies on pairs, as `sft` says, before the run")
    lora: Lora | None = None
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    eval: Eval = Field(default_factory=Eval)
    preflight: Preflight = Field(default_factory=Preflight)
    faults: Faults = Field(default_factory=Faults)
    tracker: Trackers = []
    _warmed: dict[str, str] = PrivateAttr(default_factory=dict)  # what the warm-up made, by policy (`engine.sft`)

    @model_validator(mode="after")
    def _engines(self) -> Recipe:
        if self.train.sharding == "fsdp2" and self.sampling.engine == "transformers":
            raise ValueError("train.sharding=fsdp2 samples with vLLM: set sampling.engine=vllm or train.sharding=ddp")
        if self.train.staleness and not self.sampling.importance_correction:
            raise ValueError("train.staleness=1 learns from an older policy's samples: it needs importance_correction")
        if not (self.code.weight or self.test.weight):
            raise ValueError("code.weight and test.weight are both 0: the policy would learn from nothing")
        if self.sampling.seed_by_prompt and self.sampling.engine != "transformers":
            raise ValueError("sampling.seed_by_prompt needs sampling.engine=transformers: vLLM batches as it likes")
        return self

    def role(self, role: str) -> Role:
        """The section of one policy, `code` or `test`."""
        section: Role = getattr(self, role)
        return section

    def model_of(self, role: str) -> str:
        return self._warmed.get(role) or self.role(role).model or self.model

    def dump(self) -> dict[str, Any]:
        """Every value that the method has a use for, with the defaults written out, ready for YAML."""
        return without_ignored(self.method, self.model_dump(mode="json"))
