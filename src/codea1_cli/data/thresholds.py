"""The named thresholds of deduplication and decontamination, each adjustable with `--threshold NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from codea1_cli.errors import UserError

Share = Annotated[float, Field(gt=0.0, le=1.0)]


class Thresholds(BaseModel):
    """Jaccard similarities from 0 to 1 at and above which two rows collide, and one length in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    near_question: Share = Field(0.85, description="questions of two rows")
    near_code: Share = Field(0.95, description="references of two rows, names apart")
    bench_question: Share = Field(0.72, description="a row's question and a benchmark's")
    bench_name: Share = Field(0.5, description="the same, where the function's name is the same too")
    bench_code: Share = Field(0.85, description="a row's reference and a benchmark's, names apart")
    bench_overlap: Annotated[int, Field(ge=3)] = Field(
        10, description="telling words in a row that a question shares with a benchmark's"
    )


def read_thresholds(settings: Iterable[str]) -> Thresholds:
    """Thresholds from `name=value` texts.

    Raises:
        UserError: an unknown name, or a value out of range.
    """
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in Thresholds.model_fields:
            raise UserError(f"no threshold {setting!r}", hint=f"NAME=VALUE with {', '.join(Thresholds.model_fields)}")
        values[name] = value
    try:
        return Thresholds.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"threshold {first['loc'][0]}: {first['msg']}", hint="a share from 0 to 1") from None
