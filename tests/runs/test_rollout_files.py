"""The file of a step's rollouts: its columns, and what is read back of it."""

from codea1_cli.runs.rollout_files import CandidateRecord, RecordedTest, candidates_of, history, schema, write_rollouts

RAN = "test: string, verdict: string, expected: string, got: string"
TEST = (
    "test: string, valid: bool, reason: string, stated_correctly: bool, verdict: string, expected: string, got: string"
)
COLUMNS = {
    "step": "int64",
    "problem_id": "string",
    "candidate_index": "int64",
    "completion": "string",
    "code": "string",
    "loaded": "bool",
    "load_detail": "string",
    "reward": "double",
    "selected": "bool",
    "shown": "string",
    "book": f"list<item: struct<{RAN}>>",
    "own": f"list<item: struct<{RAN}>>",
    "suites": "list<item: struct<text: string, reward: double, validity: double, adversarial: double, "
    f"breaks: list<item: string>, tests: list<item: struct<{TEST}>>>>",
}


def row(step, problem_id, index, **more):
    ran = {"test": "assert f( 1 ) == 2", "verdict": "failed", "expected": "2", "got": "1"}
    new = {
        "test": "assert f(3) == 4",
        "verdict": None,
        "expected": None,
        "got": None,
        "valid": False,
        "reason": "error",
    }
    return {
        "step": step,
        "problem_id": problem_id,
        "candidate_index": index,
        "completion": "text",
        "code": "code",
        "loaded": True,
        "load_detail": "",
        "reward": None,
        "selected": False,
        "shown": None,
        "book": [ran],
        "own": [],
        "suites": [{"text": "", "reward": 0.5, "validity": 1.0, "adversarial": 0.0, "breaks": ["a1"], "tests": [new]}],
    } | more


def test_the_columns_are_the_contract():
    assert {field.name: str(field.type) for field in schema()} == COLUMNS


def test_what_is_written_is_read_back_by_problem(tmp_path):
    file = tmp_path / "step-000003.parquet"
    write_rollouts(file, [row(3, "p", 1), row(3, "q", 0), row(3, "p", 0, loaded=None, load_detail="sandbox")])
    write_rollouts(tmp_path / "step-000001.parquet", [row(1, "p", 0)])
    failed = RecordedTest("assert f( 1 ) == 2", "failed", "2", "1")  # a test without a verdict did not run
    assert candidates_of(file, "p") == [
        CandidateRecord(3, 0, "code", None, "sandbox", None, (failed,), (("a1",),)),
        CandidateRecord(3, 1, "code", True, "", None, (failed,), (("a1",),)),
    ]
    assert [[one.step for one in step] for step in history(tmp_path, "p")] == [[3, 3], [1]]
    assert [[one.step for one in step] for step in history(tmp_path, "p", since=2)] == [[3, 3]]
    assert list(history(tmp_path, "r")) == []


def test_a_test_is_found_by_its_text_or_else_by_its_call(tmp_path):
    record = CandidateRecord(1, 0, "", True, "", None, (RecordedTest("assert f( 1 ) == 2", "failed", "2", "1"),))
    assert record.recorded("assert f( 1 ) == 2") is record.recorded("assert f(1) == 7") is record.tests[0]
    assert record.recorded("assert f(2) == 2") is None
    assert record.tests[0].failing
