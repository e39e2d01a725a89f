"""Reading replies: one policy for training and evaluation, from text to a program and from text to asserts."""

from codea1_cli.extract.code import extract_code
from codea1_cli.extract.folding import Stated
from codea1_cli.extract.suite import AssertStatement, parse_suite

__all__ = ["AssertStatement", "Stated", "extract_code", "parse_suite"]
