"""Draws a study's curves: held-out figures by step, the mean over the seeds and their range, one line per arm.

uv run python benchmarks/study/curves.py benchmarks/study/tiny-rewards.yaml --out runs/study/tiny-rewards --write docs/img/tiny-rewards.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol import read_study

from codea1_cli.runs.run_dir import RunDir
from codea1_cli.runs.summary import measured

COLOURS = ("#2a6f97", "#e07a5f", "#3d9970", "#8d6cab", "#b08900", "#6c757d")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="where the runs are kept")
    parser.add_argument("--write", type=Path, required=True, help="the SVG file")
    parser.add_argument("--figures", nargs="+", default=["pass@1", "exposed", "false alarm", "stated rightly"])
    wish = parser.parse_args()
    study = read_study(wish.study)
    runs = {arm: sorted((wish.out / arm).glob("seed-*")) for arm in study.arms}
    base = study.base or next(iter(study.arms))
    start = {folder.name: points(folder, wish.figures) for folder in runs[base]}
    curves = {
        arm: [begun(points(folder, wish.figures), start.get(folder.name)) for folder in folders]
        for arm, folders in runs.items()
        if folders
    }
    drawn = {name for arm in curves.values() for run in arm for name, values in run.items() if values}
    if lacking := [name for name in wish.figures if name not in drawn]:
        print(f"{wish.out} has no run with {', '.join(lacking)} of held-out problems", file=sys.stderr)
        return 1
    draw(curves, wish.figures, wish.write)
    return 0


Points = dict[str, dict[int, float]]
"""By figure and step, in percent."""


def points(folder: Path, figures: Sequence[str]) -> Points:
    """The held-out figures of one run by step, each over all problems."""
    found: Points = {name: {} for name in figures}
    for step, moment in measured(RunDir(folder)).get("heldout", {}).items():
        for name in figures:
            parts = moment.figures.get(name, {}).values()
            if below := sum(part[1] for part in parts):
                found[name][step] = 100 * sum(part[0] for part in parts) / below
    return found


def begun(own: Points, base: Points | None) -> Points:
    """A run's points; where it has none before its first step, with those of the base arm's run of its seed."""
    return {
        name: values if not values or 0 in values or not base or 0 not in base[name] else {0: base[name][0]} | values
        for name, values in own.items()
    }


def draw(curves: Mapping[str, Sequence[Points]], figures: Sequence[str], file: Path) -> None:
    """One panel per figure; the band is from the lowest to the highest seed."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {
        "svg.hashsalt": "codea1",
        "svg.fonttype": "none",
        "font.size": 9,
        "font.family": "sans-serif",
    }
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    figure, axes = pyplot.subplots(1, len(figures), figsize=(3 * len(figures), 2.8), layout="constrained")
    for place, name in zip([axes] if len(figures) == 1 else axes, figures, strict=True):
        for (arm, runs), colour in zip(curves.items(), COLOURS, strict=False):
            panel(place, [run[name] for run in runs if run[name]], arm, colour)
        place.set_title(name if name == "asserts per suite" else f"{name} (%)")
        place.set_xlabel("step")
        place.spines[["top", "right"]].set_visible(False)
    handles, labels = (axes if len(figures) == 1 else axes[0]).get_legend_handles_labels()
    handles, labels = [*handles, Patch(color="#6c757d", alpha=0.25, lw=0)], [*labels, "lowest to highest seed"]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(file, metadata={"Date": None})


def panel(place: Any, runs: Sequence[Mapping[int, float]], arm: str, colour: str) -> None:
    steps = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    if steps:
        values = [[run[step] for run in runs] for step in steps]
        place.plot(steps, [sum(own) / len(own) for own in values], color=colour, label=arm, marker="o", markersize=3)
        place.fill_between(
            steps, [min(own) for own in values], [max(own) for own in values], color=colour, alpha=0.15, lw=0
        )


if __name__ == "__main__":
    raise SystemExit(main())
