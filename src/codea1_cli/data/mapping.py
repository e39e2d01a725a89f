"""From `--map` and `--mapping` to the column of each field."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from codea1_cli.errors import UserError, first_line

_LINES = "FIELD: COLUMN, a line each, such as question: prompt"
_WORDS = "--map FIELD=COLUMN, such as --map question=prompt"


def read_mapping(entries: Sequence[str], file: Path | None) -> dict[str, str]:
    """The columns by field; an entry `FIELD=COLUMN` stands above a line of the YAML file.

    Raises:
        UserError: the file cannot be read or holds no mapping, an entry is none, or a field is mapped twice.
    """
    found: dict[str, str] = {} if file is None else _read(file)
    given: set[str] = set()
    for entry in entries:
        name, equals, column = entry.partition("=")
        if not equals or not name or not column:
            raise UserError(f"{entry!r} is no mapping", hint=_WORDS)
        if name in given:
            raise UserError(f"--map gives the field {name} twice", hint="name one column for it")
        given.add(name)
        found[name] = column
    return found


def _read(file: Path) -> dict[str, str]:
    import yaml

    try:
        tree = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}", hint=_LINES) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8: {error.reason}", hint=_LINES) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}" if mark else str(file)
        raise UserError(f"{place}: not YAML: {error.problem or error.context}", hint=_LINES) from None
    except yaml.YAMLError as error:
        raise UserError(f"{file}: not YAML: {first_line(error)}", hint=_LINES) from None
    except RecursionError:
        raise UserError(f"{file}: nested too deep", hint=_LINES) from None
    if not isinstance(tree, yaml.MappingNode):
        raise UserError(f"{file} holds no mapping", hint=_LINES)
    found: dict[str, str] = {}
    for name, column in tree.value:  # the tree, not the loaded values: those keep the last of two lines for one field
        place = f"{file}:{name.start_mark.line + 1}"
        if not isinstance(name, yaml.ScalarNode) or column.tag != "tag:yaml.org,2002:str":
            raise UserError(f"{place}: the column is not text", hint=_LINES)
        if name.value in found:
            raise UserError(f"{place}: the field {name.value} is mapped twice", hint="name one column for it")
        found[name.value] = column.value
    return found
