"""Whether the sandbox tells right from wrong on this machine: a few small programs whose verdicts are known."""

from codea1_cli.doctor import Check, Status
from codea1_cli.judging.canaries import KNOWN, REFERENCE, verdicts_of_known
from codea1_cli.recipe.schema import Recipe
from codea1_cli.sandbox.verdicts import Verdict

_PROGRAMS = ("right", "wrong", "lying", "raising", "looping", "exiting")
_NUMPY = "import numpy\n\ndef f(x):\n    return int(numpy.ones((64, 64)).dot(numpy.ones(64)).sum()) // 4096 + x\n"


def sandbox_checks() -> list[Check]:
    """The verdicts of the canary programs, numpy under the default limits, and the layers of isolation.

    A wrong verdict is broken; a missing layer or numpy is a warning.
    """
    from codea1_cli.mistakes.replay import judge_of

    recipe = Recipe.model_validate({"model": "builtin:tiny", "judge": {"time_limit_s": 1.0}})
    with judge_of(recipe) as judge:
        found = verdicts_of_known(judge, _PROGRAMS)
        wrong = [
            f"{name} program: {verdict}, not {' or '.join(KNOWN[name].verdicts)}"
            for name, verdict in found.items()
            if verdict not in KNOWN[name].verdicts
        ]
        data = {"verdicts": {name: str(verdict) for name, verdict in found.items()}}
        if wrong:
            return [Check("sandbox", Status.BROKEN, "; ".join(wrong), "codea1 sandbox check says more", data)]
        checks = [Check("sandbox", Status.OK, f"{len(found)} canary programs judged rightly", data=data)]
        expected = judge.expected(REFERENCE, "f", ["f(1)"])
        numpy = judge.check(_NUMPY, "f", ["f(1)"], expected).verdicts["f(1)"]
        if numpy.verdict is not Verdict.PASSED:
            detail = f"a program that imports numpy: {numpy.verdict}: {numpy.got}"
            checks.append(Check("numpy in the sandbox", Status.WARNING, detail, "uv sync, or set sandbox.python"))
        checks.append(_layers(getattr(judge.sandbox, "layers", {})))
        return checks


def _layers(layers: dict[str, str]) -> Check:
    missing = {name: why for name, why in layers.items() if why}
    data = {"layers": {name: why or "works" for name, why in layers.items()}}
    if not missing:
        return Check("sandbox layers", Status.OK, ", ".join(layers), data=data)
    detail = "missing: " + ", ".join(f"{name} ({why})" for name, why in missing.items())
    hint = "candidates are held by the others; sandbox.require makes a layer compulsory"
    return Check("sandbox layers", Status.WARNING, detail, hint, data)
