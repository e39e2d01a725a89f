"""What maps a problem's fields to columns: one error on one line for whatever cannot be a mapping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1_cli.data.sources.table import read_mapping
from codea1_cli.errors import UserError


def test_entries_stand_above_the_file(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text("# ours\nquestion: prompt\nreference: 'the answer'\n")
    assert read_mapping(["question=text", "tests=a=b"], file) == {
        "question": "text", "reference": "the answer", "tests": "a=b",
    }  # fmt: skip
    assert read_mapping([], None) == {}


WRONG = {
    "question: [a\nreference: b\n": r"m\.yaml:2: not YAML: ",
    "question: 'a\n": r"m\.yaml:2: not YAML: found unexpected end of stream",
    "question: a\n\tb: c\n": r"m\.yaml:2: not YAML: ",
    "question: a: b\n": r"m\.yaml:1: not YAML: mapping values are not allowed here",
    "question: *a\n": r"m\.yaml:1: not YAML: found undefined alias",
    "question: a\n---\nquestion: b\n": r"m\.yaml:2: not YAML: ",
    "question: \x01\n": r"m\.yaml: not YAML: ",
    "question: a\nreference: b\nquestion: c\n": r"m\.yaml:3: the field question is mapped twice",
    "question: a\nreference: [b]\n": r"m\.yaml:2: the column is not text",
    "question: 5\n": r"m\.yaml:1: the column is not text",
    "question:\n": r"m\.yaml:1: the column is not text",
    "[a]: b\n": r"m\.yaml:1: the column is not text",
    "- question\n": r"m\.yaml holds no mapping",
    "question=prompt\n": r"m\.yaml holds no mapping",
    "": r"m\.yaml holds no mapping",
    b"\xff": r"m\.yaml:1: not UTF-8",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_file_that_is_no_mapping(tmp_path, text):
    file = tmp_path / "m.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=WRONG[text]) as failure:
        read_mapping([], file)
    assert "\n" not in failure.value.what
    assert failure.value.hint


@given(st.text(alphabet="ab:- \n\t[]{}'\"*&!|>#%@`,?\x00\ud800", max_size=40))
def test_any_text_is_a_mapping_or_one_line_of_error(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(text.encode(errors="surrogatepass"))
    try:
        found = read_mapping([], file)
    except UserError as error:
        found = {"": error.what}
    assert all(isinstance(column, str) for column in found.values())
    assert "\n" not in found.get("", "")


@pytest.mark.parametrize("entries", [["question"], ["=a"], ["question="]])
def test_entries_that_are_no_mapping(entries):
    with pytest.raises(UserError, match="is not a mapping"):
        read_mapping(entries, None)


def test_a_field_given_twice_or_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="--map gives the field question twice"):
        read_mapping(["question=a", "reference=b", "question=c"], None)
    with pytest.raises(UserError, match=r"none\.yaml: no such file"):
        read_mapping([], tmp_path / "none.yaml")
    with pytest.raises(UserError, match="Is a directory"):
        read_mapping([], tmp_path)
