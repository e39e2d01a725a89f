"""Draws docs/img/loop.svg, the picture of the game at the top of the README: `uv run python scripts/loop_picture.py`."""

from pathlib import Path

FILE = Path(__file__).parents[1] / "docs" / "img" / "loop.svg"
BOXES = {  # name: x, y, width, height, class, title, lines
    "problem": (10, 130, 146, 60, "plain", "problem", ("a statement; a reference", "that only the judge sees")),
    "code": (210, 30, 210, 76, "code", "Code LLM", ("writes n solutions", "paid for tests passed")),
    "test": (210, 214, 210, 76, "test", "Test LLM", ("reads each solution, writes tests", "paid for bugs found, rightly stated")),
    "judge": (500, 122, 180, 76, "plain", "sandbox and judge", ("every solution on every test,", "every test on the reference")),
    "book": (500, 250, 180, 60, "plain", "Mistake Book", ("tests that solutions failed",)),
}  # fmt: skip
ARROWS = (  # path, label, where the label stands
    ("M156 150 C184 140 184 90 206 78", "", (0, 0)),
    ("M156 172 C184 185 184 225 206 238", "", (0, 0)),
    ("M315 106 L315 210", "solutions", (323, 162)),
    ("M420 62 C470 62 520 80 545 118", "solutions", (478, 56)),
    ("M420 248 C458 244 480 215 505 196", "tests", (446, 262)),
    ("M498 140 C464 130 444 114 424 98", "reward", (446, 148)),
    ("M498 172 C462 182 440 204 424 224", "reward", (416, 186)),
    ("M600 198 L600 246", "failed", (608, 226)),
    ("M566 250 C560 232 560 216 564 202", "replayed", (500, 232)),
)
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600; font-size: 14px } .label { fill: #57606a } .line { font-size: 11px }
  rect { stroke-width: 1.5; fill: #f6f8fa; stroke: #8c959f } .code { fill: #ddf4ff; stroke: #218bff } .test { fill: #fff1e5; stroke: #e16f24 }
  path { fill: none; stroke: #57606a; stroke-width: 1.5 } marker path { fill: #57606a; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .label { fill: #9198a1 } rect { fill: #161b22; stroke: #6e7681 } .code { fill: #0c2d6b; stroke: #58a6ff }
    .test { fill: #4a2006; stroke: #f0883e } path { stroke: #9198a1 } marker path { fill: #9198a1 }
  }
"""


def box(x: int, y: int, width: int, height: int, kind: str, title: str, lines: tuple[str, ...]) -> str:
    """One box with its title and lines, centred."""
    middle, top = x + width / 2, y + height / 2 - 8 * len(lines) + 4
    texts = [f'<text class="title" x="{middle}" y="{top}" text-anchor="middle">{title}</text>']
    texts += [
        f'<text x="{middle}" y="{top + 17 * (i + 1)}" text-anchor="middle" class="line">{line}</text>'
        for i, line in enumerate(lines)
    ]
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>' + "".join(texts)


def picture() -> str:
    """The whole SVG."""
    arrows = [f'<path d="{path}" marker-end="url(#head)"/>' for path, *_ in ARROWS]
    labels = [f'<text class="label" x="{at[0]}" y="{at[1]}">{label}</text>' for _, label, at in ARROWS if label]
    head = '<marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z"/></marker>'
    parts = [box(*one) for one in BOXES.values()] + arrows + labels
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 325" role="img" aria-label="The Code LLM writes solutions, the Test LLM tests that break them; a sandbox judges both.">',
            f"<style>{STYLE}</style>", f"<defs>{head}</defs>", *parts, "</svg>", "",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
