"""What a family of function problems is: parameters, several wordings, right and plausibly wrong bodies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from string import Template

ENTRY_POINT = "solve"
INDENT = "    "

Parameters = Mapping[str, int | str]


@dataclass(frozen=True)
class Family:
    """Templates over `$k`, `$j`, `$c`, `$e` (parameters) and `$near` (`$k` missed by one).

    `arguments` names the function's arguments, and each name stands for a kind of value: `xs`, `ys` lists of integers,
    `s` a short word, `n`, `m` integers, `d` a dict from letters to integers. `wordings` holds at least five questions:
    one is kept for the held-out split and one for the dev split.
    """

    name: str
    arguments: tuple[str, ...]
    wordings: tuple[str, ...]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    parameters: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)

    @property
    def declaration(self) -> str:
        return f"def {ENTRY_POINT}({', '.join(self.arguments)}):"

    def grid(self) -> Iterator[Parameters]:
        """Every combination of parameter values, in a fixed order."""
        for values in product(*self.parameters.values()):
            yield dict(zip(self.parameters, values, strict=True))

    def source(self, body: str, parameters: Parameters) -> str:
        """A whole function: the declaration over a filled-in body."""
        lines = fill(body, parameters).split("\n")
        return "\n".join([self.declaration, *(INDENT + line for line in lines)])


def fill(template: str, parameters: Parameters) -> str:
    """Substitute the parameters into a template.

    Raises:
        KeyError: the template names a parameter that is not there.
    """
    return Template(template).substitute(parameters)
