"""The families that fold a filtered list: every condition on an item crossed with every fold over the items."""

from dataclasses import dataclass, field

from world.family import Family

K = tuple(range(2, 10))
DIVISORS = tuple(range(3, 10))


@dataclass(frozen=True)
class Condition:
    """A test of one item `x`: how a question names the items, the expression, and near misses of it."""

    name: str
    phrases: tuple[str, ...]
    right: str
    wrong: tuple[str, ...]
    parameters: dict[str, tuple[int | str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Fold:
    """What is done with the items; `@F` stands for the items' phrase and `@C` for the condition."""

    name: str
    openings: tuple[str, ...]
    right: tuple[str, ...]
    wrong: tuple[str, ...]


CONDITIONS = (
    Condition("even", ("even numbers", "even values", "even items"), "x % 2 == 0", ("x % 2 == 1", "x % 4 == 0", "x > 0 and x % 2 == 0")),
    Condition("odd", ("odd numbers", "odd values", "odd items"), "x % 2 == 1", ("x % 2 == 0", "x % 4 == 1", "x > 0 and x % 2 == 1")),
    Condition("positive", ("positive numbers", "values above zero", "items greater than zero"), "x > 0", ("x >= 0", "x > 1", "x != 0")),
    Condition("negative", ("negative numbers", "values below zero", "items less than zero"), "x < 0", ("x <= 0", "x < -1", "x != 0")),
    Condition("above", ("numbers greater than $k", "values above $k", "items over $k"), "x > $k", ("x >= $k", "x > $near", "x != $k"), {"k": K}),
    Condition("below", ("numbers less than $k", "values below $k", "items under $k"), "x < $k", ("x <= $k", "x < $near", "0 < x < $k"), {"k": K}),
    Condition("at_least", ("numbers that are at least $k", "values of $k or more", "items not below $k"), "x >= $k", ("x > $k", "x >= $near", "x == $k"), {"k": K}),
    Condition("at_most", ("numbers that are at most $k", "values of $k or less", "items not above $k"), "x <= $k", ("x < $k", "x <= $near", "0 < x <= $k"), {"k": K}),
    Condition("multiple", ("multiples of $k", "numbers divisible by $k", "values that $k divides"), "x % $k == 0", ("x == $k", "x % $near == 0", "x > 0 and x % $k == 0"), {"k": DIVISORS}),
    Condition("indivisible", ("numbers not divisible by $k", "items that are no multiple of $k", "values that $k does not divide"), "x % $k != 0", ("x != $k", "x % $near != 0", "x > 0 and x % $k != 0"), {"k": DIVISORS}),
    Condition("other", ("numbers other than $k", "values different from $k", "items not equal to $k"), "x != $k", ("x > $k", "x != $near", "x < $k"), {"k": K}),
    Condition("within", ("numbers from $k to $j", "values between $k and $j inclusive", "items in the range $k to $j"), "$k <= x <= $j", ("$k < x <= $j", "$k <= x < $j", "x <= $j"), {"k": (1, 2, 3, 4), "j": (6, 7, 8, 9)}),
)  # fmt: skip

FOLDS = (
    Fold(
        "sum",
        ("Return the sum of the @F in xs.", "Add up the @F in xs.", "Compute the total of the @F in xs.", "Sum the @F of xs.", "What do the @F in xs add up to?"),
        ("return sum(x for x in xs if @C)", "t = 0\nfor x in xs:\n    if @C:\n        t += x\nreturn t"),
        ("return sum(x for x in xs[1:] if @C)", "return sum(x for x in xs[:-1] if @C)", "return sum(x for x in set(xs) if @C)"),
    ),
    Fold(
        "count",
        ("Count the @F in xs.", "Return how many @F are in xs.", "Return the number of @F in xs.", "Tell how many of the @F xs holds.", "How many @F does xs have?"),
        ("return sum(1 for x in xs if @C)", "return len([x for x in xs if @C])"),
        ("return sum(1 for x in xs[1:] if @C)", "return sum(1 for x in xs[:-1] if @C)", "return sum(1 for x in set(xs) if @C)"),
    ),
    Fold(
        "keep",
        ("Return a list of the @F in xs.", "Keep only the @F in xs.", "List the @F in xs in order.", "Pick the @F out of xs.", "Which are the @F in xs? Return a list."),
        ("return [x for x in xs if @C]", "r = []\nfor x in xs:\n    if @C:\n        r.append(x)\nreturn r"),
        ("return sorted(x for x in xs if @C)", "return [x for x in xs[1:] if @C]", "return [x for x in xs[:-1] if @C]"),
    ),
    Fold(
        "drop",
        ("Remove the @F from xs.", "Return xs without the @F.", "Return a list of xs with the @F left out.", "Drop the @F from xs.", "Leave the @F out of xs."),
        ("return [x for x in xs if not @C]",),
        ("return sorted(x for x in xs if not @C)", "return [x for x in xs[1:] if not @C]", "return [x for x in xs if @C]"),
    ),
    Fold(
        "largest",
        ("Return the largest of the @F in xs, or 0 if there are none.", "Find the maximum of the @F in xs, or 0.", "Return the biggest of the @F in xs, 0 by default.", "Give the greatest of the @F in xs, or 0 for none.", "Which of the @F in xs is the largest? Return 0 if there are none."),
        ("return max([x for x in xs if @C], default=0)",),
        ("return max([x for x in xs if @C])", "return max([x for x in xs if @C], default=-1)", "return max([x for x in xs[1:] if @C], default=0)"),
    ),
    Fold(
        "smallest",
        ("Return the smallest of the @F in xs, or 0 if there are none.", "Find the minimum of the @F in xs, or 0.", "Return the least of the @F in xs, 0 by default.", "Give the lowest of the @F in xs, or 0 for none.", "Which of the @F in xs is the smallest? Return 0 if there are none."),
        ("return min([x for x in xs if @C], default=0)",),
        ("return min([x for x in xs if @C])", "return min([x for x in xs if @C], default=-1)", "return min([x for x in xs[1:] if @C], default=0)"),
    ),
    Fold(
        "first",
        ("Return the first of the @F in xs, or 0 if there are none.", "Find the first of the @F in xs, or 0.", "Return the earliest of the @F in xs, 0 by default.", "Give the leftmost of the @F in xs, or 0 for none.", "Which of the @F comes first in xs? Return 0 if there are none."),
        ("return next((x for x in xs if @C), 0)", "for x in xs:\n    if @C:\n        return x\nreturn 0"),
        ("return next(x for x in xs if @C)", "return next((x for x in xs if @C), -1)", "return next((x for x in xs[1:] if @C), 0)"),
    ),
    Fold(
        "any",
        ("Return True if any of the @F appear in xs.", "Check whether xs has any @F.", "Decide if xs contains at least one of the @F.", "Tell whether some of the @F are in xs.", "Are there any @F in xs?"),
        ("return any(@C for x in xs)", "return bool([x for x in xs if @C])"),
        ("return any(@C for x in xs[1:])", "return any(@C for x in xs[:-1])", "return bool(xs) and all(@C for x in xs)"),
    ),
    Fold(
        "all",
        ("Return True if xs has only @F.", "Check whether all of xs are @F.", "Decide if xs is made up of @F only.", "Tell whether xs holds nothing but @F.", "Are all items of xs @F?"),
        ("return all(@C for x in xs)",),
        ("return all(@C for x in xs[1:])", "return all(@C for x in xs[:-1])", "return bool(xs) and all(@C for x in xs)"),
    ),
    Fold(
        "twice",
        ("Return a list with the @F in xs doubled.", "Double the @F in xs and list them.", "List twice the @F in xs.", "Pick the @F of xs and double each.", "What are the doubles of the @F in xs?"),
        ("return [x * 2 for x in xs if @C]", "r = []\nfor x in xs:\n    if @C:\n        r.append(x * 2)\nreturn r"),
        ("return [x * 2 for x in xs[1:] if @C]", "return [x * 2 for x in xs[:-1] if @C]", "return [x * 2 for x in sorted(xs) if @C]"),
    ),
)  # fmt: skip


def fold_families() -> list[Family]:
    """One family for each pair of a fold and a condition; a wrong body misses either the fold or the condition.

    The wordings are ordered by opening, so that keeping the n-th opening keeps it under every phrase.
    """
    return [_cross(fold, condition) for fold in FOLDS for condition in CONDITIONS]


def _cross(fold: Fold, condition: Condition) -> Family:
    def body(template: str, expression: str) -> str:
        return template.replace("@C", expression)

    return Family(
        name=f"{fold.name}_{condition.name}",
        arguments=("xs",),
        wordings=tuple(opening.replace("@F", phrase) for opening in fold.openings for phrase in condition.phrases),
        right=tuple(body(template, condition.right) for template in fold.right),
        wrong=(
            *(body(template, condition.right) for template in fold.wrong),
            *(body(fold.right[0], expression) for expression in condition.wrong),
        ),
        parameters=condition.parameters,
    )
