"""Where each rank runs: one spec per rank, and the order in which they come up."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1_cli.engine.cluster import free_ports
from codea1_cli.engine.nodes import Node, cpu_threads, meeting_points, place, threads_on
from codea1_cli.environment import rank_environment
from codea1_cli.errors import EnvironmentFault
from codea1_cli.methods.registry import method_of
from codea1_cli.planning.gpu_assignment import Gpu
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir


@dataclass(frozen=True)
class RankSpec:
    """Where one rank runs and what it belongs to."""

    role: str
    rank: int
    ranks: int
    gpu: str | None  # physical id; None on a machine without GPUs
    threads: int
    master_port: int
    run_path: str
    use_vllm: bool
    node: str | None = None  # Ray's id of its node in a cluster that was given; None on this machine
    master_host: str = "127.0.0.1"  # where rank 0 is
    others: tuple[tuple[str, int], ...] = ()  # (role, ranks) of the other policies on the same GPU

    @property
    def label(self) -> str:
        return f"{self.role}[{self.rank}]"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it is given."""
        return rank_environment(
            self.rank,
            self.ranks,
            gpu=self.gpu,
            threads=self.threads,
            master=(self.master_host, self.master_port),
            vllm=self.use_vllm,
            alone=self.node is None,
            run=Path(self.run_path),
        )


def rank_specs(
    recipe: Recipe, run: RunDir, ranks: dict[str, list[Gpu | None]], nodes: Sequence[Node] = (), ray: Any = None
) -> list[RankSpec]:
    """One spec per rank; each policy has its own port, because two trainers on one port collide."""
    on_cpu = sum(gpu is None for group in ranks.values() for gpu in group)
    threads = recipe.train.threads or cpu_threads(os.cpu_count() or 1, on_cpu)
    specs = []
    roles = method_of(recipe).roles
    placed = place(ranks, nodes) if nodes else {}
    if placed:
        meet = meeting_points(ray, placed)
    else:
        meet = {role: ("127.0.0.1", port) for role, port in zip(roles, free_ports(len(roles)), strict=True)}
    for role in roles:
        for rank, gpu in enumerate(ranks[role]):
            specs.append(
                RankSpec(
                    role=role,
                    rank=rank,
                    ranks=len(ranks[role]),
                    gpu=gpu.physical if gpu else None,
                    threads=(recipe.train.threads or threads_on(placed[role][rank], placed)) if placed else threads,
                    master_port=meet[role][1],
                    run_path=str(run.path),
                    use_vllm=wants_vllm(recipe, gpu),
                    node=placed[role][rank].id if placed else None,
                    master_host=meet[role][0],
                    others=tuple(
                        (other, len(ranks[other]))
                        for other in roles
                        if other != role and gpu is not None and gpu in ranks[other]
                    ),
                )
            )
    return specs


def build_order(specs: Sequence[RankSpec]) -> list[list[str]]:
    """The labels of the ranks that build together. A vLLM engine measures the free memory and picks free ports as it
    comes up, so the policies follow one another; the ranks of one policy need each other."""
    if not any(spec.use_vllm for spec in specs):
        return [[spec.label for spec in specs]]
    return [[spec.label for spec in specs if spec.role == role] for role in dict.fromkeys(spec.role for spec in specs)]


def wants_vllm(recipe: Recipe, gpu: Gpu | None) -> bool:
    from importlib.util import find_spec

    installed = find_spec("vllm") is not None
    if recipe.sampling.engine == "vllm" and not installed:
        raise EnvironmentFault(
            "sampling.engine=vllm, and vLLM is not installed",
            hint="`uv sync --extra vllm`, or sampling.engine=transformers",
        )
    wanted = recipe.sampling.engine == "vllm" or (recipe.sampling.engine == "auto" and gpu is not None and installed)
    if recipe.train.sharding == "fsdp2" and not wanted:
        raise EnvironmentFault(
            "train.sharding=fsdp2 samples with vLLM, which is not installed or has no GPU here",
            hint="`uv sync --extra vllm` on a GPU machine, or train.sharding=ddp",
        )
    return wanted
