"""The small fixed set that a run may be evaluated on."""

import json

from codea1_cli.evals.test_generation import load_ult
from codea1_cli.evals.test_generation.evaluation import figures, fixed_set
from tests.evals.test_generation.hand_made import ADD, SIGN


def test_figures_of_replies_are_flat_numbers(box, tmp_path):
    rows = [{"task_id": str(n), "code": source} for n, source in enumerate((ADD, SIGN))]
    (tmp_path / "ult.json").write_text(json.dumps(rows))
    loaded = load_ult(tmp_path / "ult.json")
    functions = fixed_set(loaded, 2)
    assert [function.name for function in functions] == ["add", "sign"]
    assert len(fixed_set(loaded, 1)) == 1
    found, rows = figures(box, functions, ["assert add(2, 2) == 4", "nothing"], 2)
    assert found["functions"] == 2
    assert abs(found["mutation"] - 100 * 9 / 11 / 2) < 1e-9
    assert found["validity"] == 25.0
    assert all(value is None or isinstance(value, int | float) for value in found.values())
    assert [shares["validity"] for shares in rows.values()] == [0.5, 0.0]
