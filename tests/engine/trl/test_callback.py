"""What the callback makes of TRL's logs."""

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from transformers import get_scheduler

from codea1_cli.engine.trl.callback import make_callback
from codea1_cli.errors import RunFailed
from codea1_cli.recipe.files import load_recipe


class Rank:
    """Stands for one rank; remembers what it asked of the arena."""

    def __init__(self, updates=2):
        self.learns_from_pairs = False
        self.spec = SimpleNamespace(policy="code", rank=0, ranks=1, label="code[0]")
        self.updates_per_step = updates
        self.arena = SimpleNamespace(report=lambda report: self.reports.append(report))
        self.recipe, self.ends = load_recipe("tiny"), (10, 10)
        self.roles, self.figures = ("code",), {}
        self.logs, self.seconds = [], {"code_sampling": 1.0}
        self.sampled_tokens = Counter(code=5)
        self.reports = []
        self.evaluated = []
        self.trainer = SimpleNamespace(accelerator=SimpleNamespace(device="cpu", gather=lambda mine: mine))

    def evaluate(self, step):
        self.evaluated.append(step)


def log(rank, optimizer_step, **logs):
    state, control = SimpleNamespace(global_step=optimizer_step), SimpleNamespace(should_save=False)
    make_callback(rank).on_log(None, state, control, logs={"loss": 0.5, "grad_norm": 1.0, **logs})


def test_a_step_is_the_mean_of_its_optimizer_steps():
    rank = Rank()
    log(rank, 3, loss=1.0, num_tokens=10.0, kl=math.inf)
    assert rank.reports == []
    log(rank, 4, loss=2.0, num_tokens=30.0)
    (report,) = rank.reports
    assert report.step == 2
    assert report.logs == {"code": {"loss": 1.5, "grad_norm": 1.0, "tokens_seen": 30.0, "sampled_tokens": 5}}
    assert report.seconds == {"code_sampling": 1.0}
    assert not rank.logs
    assert not rank.seconds
    assert not rank.sampled_tokens
    assert rank.evaluated == [2]


def test_what_an_update_reached_of_a_known_gpus_peak(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1, 2))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 1)
    rank = Rank(updates=1)
    rank.recipe = load_recipe("0.5b", ["data.train=x.jsonl"])
    rank.spec.use_vllm, rank.spec.ranks, rank.rollouts = True, 2, object()
    rank.trainer.state, rank.tokens_seen = SimpleNamespace(num_input_tokens_seen=90_000), 26_000
    rank.seconds["code_updating"] = 2.0
    log(rank, 1)
    # 64,000 tokens in 64 rows; forward, backward and two log-probs are five passes of 1.08 billion operations a token.
    parameters = 24 * (2 * 896 * (896 + 128) + 3 * 896 * 4864) + 151936 * 896
    needed = 5 * 64_000 * (2 * parameters + 2 * 24 * 896 * 1000)
    assert rank.reports[0].logs["code"]["mfu"] == pytest.approx(needed / (2.0 * 2 * 989e12))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU of tomorrow")
    rank.seconds["code_updating"] = 2.0
    log(rank, 2)
    assert "mfu" not in rank.reports[1].logs["code"]


def test_a_policy_of_two_roles_reports_each_role_and_itself_under_the_first():
    rank = Rank(updates=1)
    rank.roles, rank.sampled_tokens = ("code", "test"), Counter(code=5, test=40)
    rank.figures = {"code": {"reward": math.nan}, "test": {"reward": 0.25}}
    log(rank, 1, reward=0.125, kl=0.5)
    (report,) = rank.reports
    assert report.logs == {
        "code": {"loss": 0.5, "grad_norm": 1.0, "kl": 0.5, "sampled_tokens": 5},  # TRL's reward is that of both
        "test": {"reward": 0.25, "sampled_tokens": 40},
    }


def test_tokens_are_those_of_all_ranks_and_shares_their_mean():
    rank = Rank(updates=1)
    rank.spec.ranks, rank.figures = 2, {"code": {"signal_share": 0.5}}
    other = torch.tensor([[8.0, 1.0]], dtype=torch.float64)
    rank.trainer.accelerator.gather = lambda mine: torch.cat([mine, other])
    log(rank, 1)
    assert rank.reports[0].logs["code"] == {"loss": 0.5, "grad_norm": 1.0, "sampled_tokens": 13, "signal_share": 0.75}


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_ends_the_run(name, value):
    with pytest.raises(RunFailed, match=rf"{name} of the code policy is (nan|inf) at step 2 \(code\[0\]\)"):
        log(Rank(), 3, **{name: value})


def test_trls_closing_line_is_no_step():
    rank = Rank(updates=1)
    make_callback(rank).on_log(None, SimpleNamespace(global_step=4), None, logs={"train_runtime": 3.0})
    assert rank.reports == []


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
def test_a_run_that_goes_on_longer_has_the_longer_run_s_learning_rates(kind):
    """The checkpoint of a finished run of 6 steps, continued to 10: each rate is that of a run of 10 steps."""

    def make(steps):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
        return optimizer, get_scheduler(kind, optimizer, num_warmup_steps=2, num_training_steps=steps)

    def rates(optimizer, scheduler, steps):
        found = []
        for _ in range(steps):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return found

    whole = rates(*make(10), 10)
    short = make(6)
    rates(*short, 6)
    longer = make(10)
    for part, saved in zip(longer, short, strict=True):
        part.load_state_dict(saved.state_dict())
    state = SimpleNamespace(global_step=6)
    rank = Rank(updates=1)
    rank.step_begins = lambda: None
    make_callback(rank).on_train_begin(None, state, None, lr_scheduler=longer[1])
    assert rates(*longer, 4) == whole[6:]
