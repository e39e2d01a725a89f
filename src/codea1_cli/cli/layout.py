"""How text is laid out for people: it fits the terminal, or folds where something ends.

Three kinds of text never break: a figure with its name, a word (a name, a path, an id) and a command in backquotes.
What is longer than the terminal has a line of its own. A pipe is endlessly wide: a row is one line there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.table import Table as RichTable
from rich.text import Text

from codea1_cli.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from codea1_cli.recipe.schema import Recipe

ENDLESS = 1 << 30
_JOINED = "\u00a0"  # a space that breaks no line
_WORD = re.compile(r"(?:^\s+)?(?:(?<=next: ).+|(?:`[^`\n]*`|[\S\u00a0])+[^\S\u00a0]*)")
_FIGURE = re.compile(r"(?:\S| (?! ))+\s*")
_GAP = 2  # between two columns
_INDENT = 4  # of a cell that stands below its row
_PADDED = 60  # a cell is filled up to so many columns in a pipe
_FAIR = 16  # the least columns of a text, and of a word that is longer


def room(console: Console, *, messages: bool = False) -> int:
    """The columns that a line may take: those of the terminal, or of COLUMNS, which `messages` in a pipe ignore."""
    asked = bool(os.environ.get("COLUMNS")) and not messages
    return console.width if console.is_terminal or asked else ENDLESS


def whole(text: Text) -> Text:
    """`text`, which nothing folds."""
    text.plain = text.plain.replace(" ", _JOINED)
    return text


def folded(text: Text, width: int, indent: int = 0) -> list[Text]:
    """`text` in lines of `width` columns, broken between words; a broken line goes on after `indent` spaces."""
    lines = []
    for line in text.split(allow_blank=True):
        for number, part in enumerate(line.divide(_breaks(line.plain, width, indent))):
            part.plain = part.plain.rstrip().replace(_JOINED, " ")
            lines.append(Text(" " * indent if number else "").append_text(part))
    return lines


def _breaks(line: str, width: int, indent: int) -> list[int]:
    places, used = [], 0
    for piece in _WORD.finditer(line):
        if used and used + cell_len(piece[0].rstrip()) > width:
            places.append(piece.start())
            used = indent
        used += cell_len(piece[0])
    return places


def join_figures(groups: Sequence[str], width: int) -> str:
    """Groups of figures, two spaces apart: on one line where they fit, else on several, each but the first indented.

    A group holds figures, two spaces apart too. It is broken only where it is longer than a line.
    """
    lines = [""]
    for group in groups:
        fits = cell_len(group) + _GAP <= width
        for piece in [group] if fits else (found[0].rstrip() for found in _FIGURE.finditer(group)):
            longer = f"{lines[-1]}  {piece}" if lines[-1] else piece
            if lines[-1] and cell_len(longer) > width:
                lines.append(f"  {piece}")
            else:
                lines[-1] = longer
    return "\n".join(lines)


def print_figures(console: Console, groups: Sequence[str]) -> None:
    """Prints `figures` as wide as the terminal is; on one line in a pipe."""
    console.print(join_figures(groups, room(console, messages=True)), markup=False, soft_wrap=True)


def commented(line: str, about: str, column: int, width: int) -> list[str]:
    """A line of YAML and a comment behind it, from `column` on, in lines of `width` columns: below the line where that
    takes half of them."""
    told = f"{line:<{column}}  # {about}"
    if cell_len(told) <= width:
        return [told]
    at = max(cell_len(line), column) + 2
    if at > width // 2:
        at = len(line) - len(line.lstrip()) + 2
    first, *more = (f"# {part.plain}" for part in folded(Text(about), width - at - 2))
    begun = [f"{line:<{at}}{first}"] if cell_len(line) < at else [line, " " * at + first]
    return [*begun, *(" " * at + part for part in more)]


class Table:
    """A table that fits the console it is printed on.

    A column is given by its heading. The heading's first character says how the column is set: `>` to the right, for
    figures, and `<` to the left, for words; neither is ever broken. Without such a character it is text, which folds
    between its words.

    Where the table is too wide, headings take several lines first, then texts fold. A cell that is still too long for
    its column stands on a line of its own: above its row where that fits beside the first column, else below the row.
    A table that is still too wide is cut between columns into several, each with the first column.
    """

    def __init__(
        self, title: Text | None, columns: Sequence[str], rows: Iterable[Sequence[Text]], framed: bool
    ) -> None:
        self.title, self.framed, self.caption = title, framed, ""
        self.kinds = [column[:1] if column[:1] in ("<", ">") else "" for column in columns]
        self.heads = [column.removeprefix(kind) for column, kind in zip(columns, self.kinds, strict=True)]
        self.rows = [list(row) for row in rows]
        self.cells = [self._longest(row[i].plain for row in self.rows) for i in range(len(self.heads))]
        self.natural = [max(cells, cell_len(head)) for cells, head in zip(self.cells, self.heads, strict=True)]

    @property
    def show_header(self) -> bool:
        """Whether any column has a heading."""
        return any(self.heads)

    @staticmethod
    def _longest(cells: Iterable[str]) -> int:
        return max((cell_len(line) for cell in cells for line in cell.split("\n")), default=0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(room(console), options.max_width) if room(console) != ENDLESS else ENDLESS
        if self.framed and sum(self.natural) + 3 * len(self.heads) + 1 <= width:
            yield self._framed()
            return
        for line in self._shown(width):
            line.rstrip()
            line.no_wrap, line.overflow = True, "ignore"
            yield line

    def _shown(self, width: int) -> Iterator[Text]:
        yield from folded(self.title, width) if self.title else ()
        for band in self._bands(width):
            yield from self._band(band, self._widths(band, width), width)
        yield from folded(Text(self.caption, style="muted"), width) if self.caption else ()

    def _framed(self) -> RichTable:
        table = RichTable(
            title=self.title,
            title_justify="left",
            title_style="title",
            box=box.HEAVY_HEAD,
            show_header=self.show_header,
        )
        for head, kind in zip(self.heads, self.kinds, strict=True):
            table.add_column(head, justify="right" if kind == ">" else "left", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        return table

    def _least(self, column: int) -> int:
        head = max(map(cell_len, self.heads[column].split()), default=0)
        cells = self.cells[column]
        return max(head, cells if self.kinds[column] == ">" else min(cells, _FAIR))

    def _bands(self, width: int) -> list[list[int]]:
        """The columns of each table that this one is cut into."""
        columns = range(len(self.heads))
        if width == ENDLESS or sum(self.natural) + _GAP * (len(self.heads) - 1) <= width:
            return [list(columns)]
        bands = [[0]]
        for column in columns[1:]:
            wanted = [*bands[-1], column]
            if len(wanted) > 2 and sum(map(self._least, wanted)) + _GAP * (len(wanted) - 1) > width:
                wanted = [0, column]
                bands.append(wanted)
            bands[-1] = wanted
        return bands

    def _widths(self, band: Sequence[int], width: int) -> dict[int, int]:
        """How wide each column gets: figures as wide as they are, the others a fair share of what is left."""
        if width == ENDLESS:
            return {i: min(self.natural[i], max(_PADDED, cell_len(self.heads[i]))) for i in band}
        room = width - _GAP * (len(band) - 1)
        if sum(self.natural[i] for i in band) <= room:
            return {i: self.natural[i] for i in band}
        widths = {i: self._least(i) for i in band}
        room -= sum(widths.values())
        wishes = {i: self.cells[i] - widths[i] for i in band if self.cells[i] > widths[i]}
        for place, i in enumerate(sorted(wishes, key=lambda i: wishes[i])):
            more = max(0, min(wishes[i], room // (len(wishes) - place)))
            widths[i] += more
            room -= more
        for i in band:  # what is left goes to headings
            more = min(room, self.natural[i] - widths[i])
            if more > 0 and widths[i] + more >= cell_len(self.heads[i]):
                widths[i] += more
                room -= more
        return widths

    def _band(self, band: Sequence[int], widths: dict[int, int], width: int) -> Iterator[Text]:
        if self.show_header:
            heads = [folded(Text(self.heads[i], style="title"), widths[i]) for i in band]
            most = max(map(len, heads))
            yield from self._aligned(band, widths, [[Text()] * (most - len(head)) + head for head in heads])
        for row in self.rows:
            above: list[Text] = []
            cells: list[list[Text]] = []
            below: list[Text] = []
            for i in band:
                lines = self._lines(i, row[i], widths[i], width)
                if lines is not None:
                    cells.append(lines)
                    continue
                cells.append([])
                indent = 0 if i == band[0] else _INDENT
                lines = folded(row[i], ENDLESS if self.kinds[i] else width - indent)
                (below if indent else above).extend(Text(" " * indent).append_text(line) for line in lines)
            yield from above
            if any(line.plain for lines in cells for line in lines):
                yield from self._aligned(band, widths, cells)
            yield from below

    def _lines(self, column: int, cell: Text, size: int, width: int) -> list[Text] | None:
        """The cell's lines in its column; None where it is too long for that."""
        if width == ENDLESS:
            return folded(cell, width)
        lines = folded(cell, ENDLESS if self.kinds[column] else size)
        if max(cell_len(line.plain) for line in lines) > size:
            return None
        return lines if len(lines) <= 2 or size >= width // 3 or "\n" in cell.plain else None

    def _aligned(self, band: Sequence[int], widths: dict[int, int], cells: Sequence[Sequence[Text]]) -> Iterator[Text]:
        for number in range(max(map(len, cells))):
            line = Text()
            for i, lines in zip(band, cells, strict=True):
                part = lines[number] if number < len(lines) else Text()
                free = max(0, widths[i] - cell_len(part.plain))
                line.append(" " * (free if self.kinds[i] == ">" else 0)).append_text(part)
                line.append(" " * ((0 if self.kinds[i] == ">" else free) + _GAP))
            yield line


_KEY = re.compile(r"^( *)([A-Za-z_0-9]+):")


def commented_yaml(recipe: Recipe, width: int) -> str:
    """The recipe as YAML with every default written out and each key's meaning behind it, in lines of `width` columns.

    Loading it again gives the same recipe.
    """
    import yaml

    from codea1_cli.recipe.files import walk_fields
    from codea1_cli.recipe.schema import Recipe as Model

    meaning = {key: info.description for key, info in walk_fields(Model) if info.description}
    # An endless width keeps each value on its line, where a comment can follow it.
    text = yaml.safe_dump(recipe.dump(), sort_keys=False, allow_unicode=True, width=10**9)
    lines: list[str] = []
    path: list[str] = []
    for line in text.splitlines():
        found = _KEY.match(line)
        if found:
            depth = len(found.group(1)) // 2
            path = [*path[:depth], found.group(2)]
            if about := meaning.get(".".join(path)):
                lines += commented(line, about, 36, width)
                continue
        lines.append(line)
    result = "\n".join(lines) + "\n"
    if yaml.safe_load(result) != recipe.dump():
        raise UserError("the recipe holds text that cannot be commented", hint="use --json")
    return result
