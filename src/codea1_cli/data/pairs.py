"""Pairs of prompt and completion for supervised fine-tuning: read from a file, or made from problems.

A pair made here asks what training asks of the role (`problems.prompts`) and answers in the one form that training
asks for. Its program passes the problem's own tests; its suite has K tests, all valid and rightly stated, and breaks
the wrong program that the prompt shows.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from codea1_cli import __version__
from codea1_cli.data.sources import NOT_UNICODE
from codea1_cli.data.stages import digest
from codea1_cli.data.verify import contradiction
from codea1_cli.durable import write_atomic, write_rows
from codea1_cli.errors import UserError, counted
from codea1_cli.evals.wrong_programs import broken_programs
from codea1_cli.extract import extract_code, parse_suite
from codea1_cli.files import kept_json
from codea1_cli.game.pool import SHOWS_WRONG, storable
from codea1_cli.judging.judge import Judge, grade_on_tests, own_calls
from codea1_cli.models.loading import resolve_model
from codea1_cli.problems.problem import Problem
from codea1_cli.problems.prompts import (
    KnownNames,
    Message,
    code_block,
    code_messages,
    shown_code,
    shown_problem,
    test_messages,
)
from codea1_cli.problems.row_files import whole_rows
from codea1_cli.sandbox.base import as_ended
from codea1_cli.sandbox.verdicts import Verdict

FORMAT = 2  # of what is made: another version's pairs are made again
LONGEST = 400  # characters of a test that a suite takes
_ROW = "a row holds `completion` and `prompt` (a text or chat messages), or `messages` that end with the assistant's"


@dataclass(frozen=True)
class Pair:
    """A chat prompt and its completion; `id` is the role and the row's number."""

    id: str
    messages: list[Message]
    completion: str

    @property
    def role(self) -> str:
        """The policy that it is for."""
        return self.id.partition("/")[0]

    def row(self) -> dict[str, Any]:
        """As a file holds it."""
        return {"prompt": self.messages, "completion": self.completion}


def read_pairs(file: Path, role: str) -> list[Pair]:
    """The pairs of a file of rows. Raises UserError: it cannot be read, holds none, or a row is no pair of texts (file
    and line named)."""
    found: list[Pair] = []
    for place, row in whole_rows(file, _ROW):
        prompt, completion = row.get("prompt", row.get("messages")), row.get("completion")
        if isinstance(prompt, list) and prompt and completion is None:
            *prompt, completion = prompt
        if isinstance(completion, list) and len(completion) == 1:
            completion = completion[0]
        if isinstance(completion, dict):
            completion = completion.get("content") if completion.get("role") == "assistant" else None
        messages: Any = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not (isinstance(completion, str) and completion and isinstance(messages, list) and _is_chat(messages)):
            raise UserError(f"{place}: not a pair", hint=_ROW)
        if not all(map(storable, (completion, *(one[key] for one in messages for key in ("role", "content"))))):
            raise UserError(f"{place}: {NOT_UNICODE}", hint=_ROW)
        found.append(Pair(f"{role}/{len(found) + 1}", messages, completion))
    if not found:
        raise UserError(f"{file} holds no pair", hint=_ROW)
    return found


def _is_chat(messages: list[Any]) -> bool:
    parts = [one.get(key) for one in messages if isinstance(one, dict) for key in ("role", "content")]
    return bool(parts) and len(parts) == 2 * len(messages) and all(isinstance(part, str) for part in parts)


def row_counts(rows: Sequence[Problem | Pair]) -> tuple[int, int]:
    """How many problems there are, twice; of pairs, those of the policy with the fewest, and of that with the most."""
    counts = Counter(row.role if isinstance(row, Pair) else "" for row in rows).values() or [0]
    return min(counts), max(counts)


# -- making them -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PairOptions:
    """How pairs are made. `names`: those that the model to train knows, as the embedded one does; None: any."""

    role: str = "code"
    per_problem: int = 2
    tests_per_suite: int = 8
    white_box: bool = True
    seed: int = 0
    names: KnownNames | None = None


@dataclass(frozen=True)
class Proposal:
    """A reply that may become a pair's completion: a program, or a suite against the program `shown`."""

    text: str
    shown: str = ""


Propose = Callable[[Sequence[Problem]], list[list[Proposal]]]
"""What there is to choose from, by problem; in the problems' own names."""
_Rows = list[dict[str, Any]] | str  # a problem's pairs, or why it has none


@dataclass
class MadePairs:
    """`rows` as the file holds them; of `problems`, those that gave none by reason, and those that no test checks."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: int = 0
    without: Counter[str] = field(default_factory=Counter)
    untested: int = 0


def model_names(model: str) -> KnownNames | None:
    """The only names that a model knows (`prompts.known_names`), without its tokenizer."""
    named = kept_json(Path(resolve_model(model, get=False)) / "tokenizer_config.json").get("known_names")
    return KnownNames(**named) if isinstance(named, dict) else None


def make_pairs(
    problems: Sequence[Problem],
    options: PairOptions,
    judge: Judge,
    propose: Propose | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> MadePairs:
    """Pairs of the proposals that hold, up to `per_problem` per problem.

    Args:
        propose: None: the reference for the Code LLM; for the Test LLM suites of the problem's tests, and of variations
            of their calls, against its wrong programs (`broken_programs`).
        progress: told the problems done, of all.

    Raises:
        EnvironmentFault: cosmic-ray is missing.
    """
    make = _code_rows if options.role == "code" else _test_rows

    def items() -> Iterator[tuple[int, list[Proposal] | None]]:
        for start in range(0, len(problems), 64):
            part = problems[start : start + 64]
            yield from enumerate([None] * len(part) if propose is None else propose(part), start)

    def rows_of(item: tuple[int, list[Proposal] | None]) -> _Rows:
        return make(problems[item[0]], item[1], options, judge) if item[1] != [] else "nothing was sampled"

    made, found = MadePairs(problems=len(problems)), dict[int, _Rows]()
    with closing(as_ended(rows_of, items(), judge.most, wait=False)) as ended:  # one that takes long holds up no other
        for (number, _), rows in ended:
            found[number] = rows
            progress(len(found), len(problems))
    for number, problem in enumerate(problems):
        if isinstance(rows := found[number], str):
            made.without[rows] += 1
        else:
            made.rows += rows
            checked = "assert" in "".join(problem.tests) or own_calls(problem)
            made.untested += options.role == "code" and not checked
    return made


def _code_rows(problem: Problem, given: list[Proposal] | None, options: PairOptions, judge: Judge) -> _Rows:
    entry, mine = problem.entry_point, given is None
    if mine and not problem.reference:
        return "no reference"
    codes = [problem.reference] if given is None else [extract_code(one.text, entry) for one in given]
    codes = [code for code in dict.fromkeys(codes) if code]
    if not codes:
        return "no reply holds a program"
    if fault := contradiction(judge, problem):
        return fault
    if not mine:
        codes = [code for code, grade in zip(codes, grade_on_tests(judge, problem, codes), strict=True) if grade.passed]
    if not codes:
        return "no program passes its tests"
    prompt = code_messages(shown_problem(problem, options.names))
    return [_row(problem, prompt, shown_code(code, entry, options.names)) for code in codes[: options.per_problem]]


def _test_rows(problem: Problem, given: list[Proposal] | None, options: PairOptions, judge: Judge) -> _Rows:
    entry, names, count = problem.entry_point, options.names, options.tests_per_suite
    if not problem.reference:
        return "no reference"
    if given is None:
        draw = random.Random(f"{options.seed} {problem.id}")
        wrong, tests = broken_programs(problem, judge, options.per_problem + 2, 2 * count, draw)
        tests = {call: test for call, test in tests.items() if len(test) <= LONGEST}
        if len(tests) < count:
            return f"fewer than {counted(count, 'usable test')}"
        given = [Proposal(_suite(tests, failed, wrong, count), code) for code, failed in wrong.items()]
    if not given:
        return "no wrong program of it is known"
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for one in given:
        if len(rows) < options.per_problem and (suite := good_suite(problem, one, count, judge)):
            shown = shown_code(one.shown, entry, names) if options.white_box else None
            prompt = test_messages(shown_problem(problem, names), shown, count)
            row = _row(problem, prompt, shown_code("\n".join(suite), entry, names))
            rows.setdefault((prompt[-1]["content"], row["completion"] if shown else ""), row)
    return list(rows.values()) or "no suite is valid, rightly stated and breaks a wrong program"


def _row(problem: Problem, prompt: list[Message], source: str) -> dict[str, Any]:
    return {"problem_id": problem.id, "prompt": prompt, "completion": code_block(source.strip("\n"))}


def good_suite(problem: Problem, proposal: Proposal, count: int, judge: Judge) -> list[str] | None:
    """A suite's first `count` tests, as the reference answers; None: too few, a bad or long one, or nothing breaks."""
    entry = problem.entry_point
    statements = parse_suite(proposal.text, entry, count)
    calls = [str(statement.call) for statement in statements if statement.invalid is None]
    if len(set(calls)) < count:
        return None
    expected = judge.expected(problem.reference, entry, calls, own_calls(problem)[:8])
    tests = []
    for statement in statements:
        answer = expected[str(statement.call)]
        test = f"assert {statement.call} == {answer.text}"
        right = answer.valid and statement.stated is not None and judge.equal(answer.value, statement.stated.value)
        if not right or len(test) > LONGEST:
            return None
        tests.append(test)
    result = judge.check(proposal.shown, entry, calls, expected)
    verdicts = {test.verdict for test in result.verdicts.values()}
    broken = result.loaded and verdicts & set(SHOWS_WRONG) and verdicts <= {Verdict.PASSED, *SHOWS_WRONG}
    return tests if broken else None


def _suite(tests: Mapping[str, str], failed: frozenset[str], wrong: Mapping[str, frozenset[str]], count: int) -> str:
    """A suite of `count` tests: its first half breaks the program, if it can; each begins with what breaks most."""
    breaks = Counter(call for others in wrong.values() for call in others)
    ranked = sorted(tests, key=lambda call: -breaks[call])
    first = [call for call in ranked if call in failed][: max(count // 2, 1)]
    chosen = [*first, *(call for call in ranked if call not in first)][:count]
    return "\n".join(tests[call] for call in chosen)


PAIRS, CARD = "pairs.jsonl", "card.json"


def identity(problems: Sequence[Problem], options: PairOptions, source: Mapping[str, Any]) -> str:
    """What made pairs depend on, as a short hash. source: what the proposals come from."""
    return digest(FORMAT, [problem.model_dump() for problem in problems], asdict(options), source)[:12]


def write_pairs(
    folder: Path, made: MadePairs, options: PairOptions, source: Mapping[str, Any], command: str, key: str
) -> dict[str, Any]:
    """Writes the pairs with a card to read and one for programs, the last, which it returns. key: `identity`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CARD).unlink(missing_ok=True)
    write_rows(folder / PAIRS, made.rows)
    without = dict(sorted(made.without.items(), key=lambda item: (-item[1], item[0])))
    card: dict[str, Any] = {
        "key": key,
        "role": options.role,
        "problems": made.problems,
        "with_pairs": made.problems - sum(without.values()),
        "pairs": len(made.rows),
        "without": without,
        "untested": made.untested,
        "made_of": {**source, **asdict(options)},
        "version": __version__,
        "command": command,
    }
    lines = [f"| {reason} | {count} |" for reason, count in without.items()]
    text = [
        f"# {counted(card['pairs'], 'pair')} for the {options.role.title()} LLM of {counted(made.problems, 'problem')}",
        f"Made by codea1 {__version__} with\n\n    {command}",
        f"{counted(card['with_pairs'], 'problem')} gave up to {options.per_problem} each; unchecked: {made.untested}",
        "\n".join(["| why a problem gave none | problems |", "|---|---|", *lines]) if lines else "",
        f"```json\n{json.dumps(card['made_of'], indent=1)}\n```",
    ]
    write_atomic(folder / "README.md", "\n\n".join(filter(None, text)) + "\n")
    write_atomic(folder / CARD, json.dumps(card, indent=1) + "\n")
    return card
