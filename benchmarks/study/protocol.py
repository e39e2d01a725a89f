"""A study as it is stated before anything runs: a YAML file with the arms, seeds, steps and what is to be shown."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class Part(BaseModel):
    """A part of the file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Arm(Part):
    """One way to train: what it adds to the study's settings."""

    about: str = ""
    settings: list[str] = []


class Before(Part):
    """A command of codea1 that runs before a seed's arms do, unless what it `makes` (a file or folder) is there."""

    makes: str
    run: str


class Aim(Part):
    """Something to be shown of a figure, in percentage points (a number where the figure is no share).

    The difference is `arm` after training less `over`: another arm after training, or `before`, which is the arm itself before its first step. Exactly one of these says what it
    must be. above: the interval lies above this margin; every such aim is a test, and they are corrected together (Holm). gain: the difference itself reaches this. at_most: it
    does not exceed this. times: in every seed the figure ends at least so many times as high.
    """

    figure: str
    arm: str
    over: str = "before"
    above: float | None = None
    gain: float | None = None
    at_most: float | None = None
    times: float | None = None

    @model_validator(mode="after")
    def _one(self) -> Aim:
        if sum(value is not None for value in (self.above, self.gain, self.at_most, self.times)) != 1:
            raise ValueError("an aim has one of above, gain, at_most, times")
        return self


class Study(Part):
    """recipe: what all arms start from; settings: what all arms add to it. base: the arm whose evaluation before the first step stands for the base model, for arms that have none
    (`eval.before=false`); the first one when it is left out. before: commands that make what arms need, in order; in them and in settings $seed is the seed and $out the
    folder of the study's runs. share_targets: suites of all arms are written against the wrong programs that the first run found. notes: Markdown
    below the tables of the page. own_problems: arms train on data of their own, so that the same seed does not mean the
    same problems; their numbers of steps are compared still."""

    title: str
    about: str = ""
    recipe: str
    settings: list[str] = []
    seeds: list[int] = Field(min_length=1)
    before: list[Before] = []
    arms: dict[str, Arm] = Field(min_length=1)
    base: str | None = None
    share_targets: bool = False
    own_problems: bool = False
    figures: list[str] | None = Field(
        None, description="columns of the tables, in this order; null: all that there are"
    )
    aims: list[Aim] = []
    notes: str = ""

    @model_validator(mode="after")
    def _arms_are_known(self) -> Study:
        for name in [self.base or next(iter(self.arms)), *(aim.arm for aim in self.aims)]:
            if name not in self.arms:
                raise ValueError(f"there is no arm {name!r}")
        for aim in self.aims:
            if aim.over not in (*self.arms, "before"):
                raise ValueError(f"there is no arm {aim.over!r} to compare {aim.arm} with")
        return self


def read_study(file: Path) -> Study:
    """Raises SystemExit, with the key that is wrong."""
    try:
        return Study.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as fault:
        raise SystemExit(f"{file}: {fault}") from None
    except ValidationError as fault:
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in fault.errors())
        raise SystemExit(f"{file}: {told}") from None
