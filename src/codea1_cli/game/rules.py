"""The switches of one game."""

from dataclasses import dataclass
from typing import Literal, get_args

from codea1_cli.errors import UserError

Mode = Literal["default", "paper"]


@dataclass(frozen=True)
class GameRules:
    """What one game is played by; the defaults are Code-A1's, less its defects (`mode="paper"` brings them back)."""

    mode: Mode = "default"
    tests_per_suite: int = 8  # K: the asserts a suite is asked for
    max_tests_per_suite: int | None = None  # asserts read from a suite; None: 2K by default, all in paper mode
    alpha: float = 0.5  # weight of validity against adversarial strength
    book: bool = True
    book_replay: int = 8
    white_box: bool = True
    validation: bool = True
    update_n: int = 1  # candidates a problem whose suites train the Test LLM

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise UserError(f"game.mode is {self.mode!r}", hint="choose one of " + ", ".join(get_args(Mode)))
        if not 0.0 <= self.alpha <= 1.0:
            raise UserError(f"game.alpha is {self.alpha}", hint="choose a number from 0 to 1")
        least = {"tests_per_suite": 1, "book_replay": 0, "update_n": 1, "max_tests_per_suite": 1}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise UserError(f"game.{name} is {value}", hint=f"choose at least {minimum}")

    @property
    def paper(self) -> bool:
        return self.mode == "paper"

    @property
    def cap(self) -> int | None:
        """How many asserts of a suite are read; None: all."""
        if self.max_tests_per_suite is not None:
            return self.max_tests_per_suite
        return None if self.paper else 2 * self.tests_per_suite
