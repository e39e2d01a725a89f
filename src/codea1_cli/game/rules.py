"""The rules of the game: the recipe's `game` section."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MOST = 10**15  # more is a typing error, and more than a float holds exactly
Positive = Annotated[int, Field(ge=1, le=MOST)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(f"[least, most], and {pair[0]:g} is more than {pair[1]:g}")
    return pair


def _two(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("two shares are wanted, the least and the most, as [0.1, 0.9]")
    return value


Range = Annotated[tuple[Share, Share], BeforeValidator(_two), AfterValidator(_rising)]


class Game(BaseModel):
    """What one game is played by; the defaults are Code-A1's, less its defects (`mode="paper"` brings them back)."""

    model_config = ConfigDict(extra="forbid", validate_default=True, protected_namespaces=())

    mode: Literal["default", "paper"] = Field(
        "default", description="`paper` keeps the published code's choices, `default` corrects them"
    )
    n_code: Annotated[int, Field(ge=2, le=MOST)] = Field(8, description="candidates per problem")
    n_test: Annotated[int, Field(ge=2, le=MOST)] = Field(8, description="suites per candidate")
    update_n: Positive = Field(1, description="candidates per problem whose suites the Test LLM learns from")
    tests_per_suite: Positive = Field(8, description="asserts asked of a suite (K)")
    max_tests_per_suite: Positive | None = Field(
        None, description="asserts read of a suite; null: 2K (default mode), no cap (paper mode)"
    )
    kill: Literal["pool", "marginal", "own"] | None = Field(
        None,
        description="what a suite is paid for breaking: `pool`, a problem's wrong programs, by rightly stated tests; "
        "`marginal`, the same, less for what its sibling suites break too; `own`, its candidate, as the paper does; "
        "null: pool, and own in paper mode or without validation",
    )
    alpha: Share | None = Field(
        None,
        description="weight of validity in the test reward, the rest is for what is broken; null: 0.3, 0.5 for `own`",
    )
    trust: bool = Field(
        True,
        description="kills of the pool count times the share of the suite's valid tests that state the right answer",
    )
    pool_size: Positive = Field(8, description="wrong programs kept per problem, the newest")
    sparring: Annotated[int, Field(ge=0)] = Field(
        0, description="candidates per problem that seem right, in whose place the Test LLM is shown one of the pool"
    )
    golden: Literal["share", "all"] = Field(
        "share",
        description="reward under golden-tests: `share` of the problem's own tests passed, or 1 for passing them `all`",
    )
    white_box: bool = Field(True, description="show the candidate to the Test LLM")
    book: bool = Field(True, description="replay a problem's Mistake Book on its candidates")
    book_replay: Positive = Field(8, description="Mistake Book tests replayed, the most frequent first")
    validation: bool = Field(
        True, description="answer every call by the reference; off: the model's own answers are expected"
    )
    share_identical: bool = Field(False, description="identical candidates of a problem share one set of suites")

    @model_validator(mode="after")
    def _consistent(self) -> Game:
        if self.update_n > self.n_code:
            raise ValueError(f"update_n={self.update_n} cannot exceed n_code={self.n_code}")
        if self.max_tests_per_suite is not None and self.max_tests_per_suite < self.tests_per_suite:
            raise ValueError("max_tests_per_suite cannot be below tests_per_suite")
        if self.mode == "paper" and self.share_identical:
            raise ValueError("share_identical is not part of the paper's game: set game.share_identical=false")
        if self.kill in ("pool", "marginal") and (self.paper or not self.validation):
            raise ValueError(f"kill={self.kill} needs mode=default and validation=true: set game.kill=own")
        if self.sparring and not self.has_pool:
            raise ValueError("sparring partners come from the pool: set game.sparring=0, or game.kill=pool")
        return self

    @property
    def paper(self) -> bool:
        """Whether the published code's choices are kept."""
        return self.mode == "paper"

    @property
    def has_pool(self) -> bool:
        """Whether wrong programs are pooled, and suites paid for breaking them."""
        return self.kill != "own" and not self.paper and self.validation

    @property
    def resolved_alpha(self) -> float:
        """The weight of validity in the test reward, from 0 to 1."""
        return self.alpha if self.alpha is not None else (0.3 if self.has_pool else 0.5)

    @property
    def cap(self) -> int | None:
        """How many asserts of a suite are read; None: all."""
        if self.max_tests_per_suite is not None:
            return self.max_tests_per_suite
        return None if self.paper else 2 * self.tests_per_suite
