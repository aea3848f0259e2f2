"""Make an animated SVG of a part of a terminal's recording (asciicast v2).

    asciinema rec --cols 100 --rows 40 -c penstock-demo demo.cast
    uv run --with pyte docs/images/terminal_svg.py demo.cast docs/images/act-two.svg \\
        --begin "Act two" --end "Finale" --title "Act two of the demo"

Every line is what the terminal showed, in its order; waits are shortened to ``--wait-max`` seconds
and spinners do not turn. CSS alone moves the picture, so that it plays as an image too.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyte

FONT_SIZE, CELL, LINE, PAD, BAR = 14.5, 8.73, 20, 16, 30
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
INK = {
    "default": "#d7dde5",
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",
    "cyan": "#76e3ea",
    "brightgreen": "#56d364",
}
SPINNER = re.compile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")

Row = tuple[tuple[str, str, bool], ...]  # runs of one style: text, colour, bold
Shot = tuple[float, list[Row]]


def frames(path: Path) -> Iterator[Shot]:
    """Each screen that was shown, and when: the whole of what scrolled by, not only 40 rows."""
    lines = path.read_text().splitlines()
    header = json.loads(lines[0])
    screen = pyte.Screen(header["width"], 3000)
    stream = pyte.Stream(screen)
    for line in lines[1:]:
        at, kind, data = json.loads(line)
        if kind == "o":
            stream.feed(data)
            used = [
                i
                for i in sorted(screen.buffer)
                if any(c.data != " " for c in screen.buffer[i].values())
            ]
            yield (
                at,
                [
                    row_of(screen.buffer[i], screen.columns)
                    for i in range(max(used, default=-1) + 1)
                ],
            )


def row_of(cells: Any, columns: int) -> Row:
    runs: list[list[Any]] = []
    for x in range(columns):
        cell = cells[x]
        style = [cell.fg, bool(cell.bold)]
        if runs and (runs[-1][1:] == style or cell.data == " "):
            runs[-1][0] += cell.data
        else:
            runs.append([cell.data, *style])
    if runs:
        runs[-1][0] = runs[-1][0].rstrip()
    return tuple((text, fg, bold) for text, fg, bold in runs if text)


def text_of(row: Row) -> str:
    return "".join(run[0] for run in row)


def part(path: Path, begin: str, end: str, wait_max: float) -> list[Shot]:
    """The frames between two lines, from 0 seconds, without those that only turn a spinner."""
    found: list[Shot] = []
    last_real, shift, at_before = "", 0.0, None
    for at, rows in frames(path):
        texts = [text_of(row) for row in rows]
        first = next((i for i, text in enumerate(texts) if text.startswith(begin)), None)
        if first is None:
            continue
        last = next((i for i, text in enumerate(texts) if text.startswith(end)), len(rows))
        shown = rows[first:last]
        real = SPINNER.sub("*", "\n".join(text_of(row) for row in shown))
        if real == last_real:
            continue
        if at_before is not None:
            shift += max(0.0, at - at_before - wait_max)
        found.append((at - shift, shown))
        last_real, at_before = real, at
        if last < len(rows):
            break
    begun = found[0][0]
    return [(at - begun, rows) for at, rows in found]


def svg(shots: Sequence[Shot], title: str, stay: float, columns: int, rows_max: int) -> str:
    """Each row is drawn once for every time span in which it was there; a long part scrolls."""
    total = shots[-1][0] + stay
    spans: list[list[Any]] = []  # row number, row, from, to
    there: dict[int, list[Any]] = {}
    for at, rows in shots:
        for y in range(max(len(rows), len(there) and max(there) + 1)):
            row = rows[y] if y < len(rows) else ()
            if y in there and there[y][1] == row:
                continue
            if y in there:
                there.pop(y)[3] = at
            if row:
                there[y] = [y, row, at, total]
                spans.append(there[y])
    height = min(rows_max, max(len(rows) for _, rows in shots))
    tops = [(at, max(0, len(rows) - height)) for at, rows in shots]
    css_scroll = "".join(
        f"{at / total * 100:.2f}%{{transform:translateY({-top * LINE}px)}}"
        for (at, top), before in zip(tops, [None, *(t for _, t in tops)], strict=False)
        if top != before
    )
    width, tall = round(columns * CELL + 2 * PAD), BAR + height * LINE + PAD
    css, body = [], []
    for n, (y, row, begin, to) in enumerate(s for s in spans if s[3] - s[2] > 0.01):
        a, b = begin / total * 100, to / total * 100
        steps = [f"0%,{a:.2f}%{{opacity:0}}" if begin else "", f"{a:.2f}%,{b:.2f}%{{opacity:1}}"]
        if to < total:
            steps.append(f"{b:.2f}%,100%{{opacity:0}}")
        name = ""
        hidden = ' opacity="0"' if to < total else ""  # where nothing moves, the end is shown
        if begin or to < total:
            css.append(f"@keyframes k{n}{{{''.join(steps)}}}#r{n}{{animation-name:k{n}}}")
            name = f' id="r{n}" class="a"{hidden}'
        place = f"translate({PAD} {BAR + y * LINE + 14})"
        body.append(f'<g{name} transform="{place}">{texts(row)}</g>')
    end = f"transform:translateY({-tops[-1][1] * LINE}px)"
    css.append(f"@keyframes scroll{{{css_scroll}}}#s{{animation-name:scroll;{end}}}")
    style = (
        f".a{{animation-duration:{total:.1f}s;animation-iteration-count:infinite;"
        f"animation-timing-function:step-end}}text{{white-space:pre;font:{FONT_SIZE}px {FONTS}}}"
        ".b{font-weight:bold}"
    )
    lights = "".join(
        f'<circle cx="{18 + 20 * i}" cy="15" r="6" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    said = escape(title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" width="{width}"',
        f' height="{tall}" role="img" aria-label="{said}"><title>{said}</title>',
        f"<style>{style}{''.join(css)}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>{lights}',
        f'<clipPath id="c"><rect y="{BAR}" width="{width}" height="{height * LINE + 4}"/>',
        f'</clipPath><g clip-path="url(#c)"><g id="s" class="a">{"".join(body)}</g></g></svg>\n',
    ]
    return "".join(parts)


def texts(row: Row) -> str:
    """One element a run, as wide as its cells, whatever font is there."""
    out, x = [], 0
    for text, fg, bold in row:
        bare = text.rstrip()
        lead = len(bare) - len(bare.lstrip())
        bare = bare.lstrip()
        if bare:
            kind = ' class="b"' if bold else ""
            ink = INK.get(fg, INK["default"])
            place = f'x="{(x + lead) * CELL:.1f}" textLength="{len(bare) * CELL:.1f}"'
            out.append(f'<text {place} fill="{ink}"{kind}>{escape(bare, quote=False)}</text>')
        x += len(text)
    return "".join(out)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--begin", required=True, help="the line with which the part begins")
    parser.add_argument("--end", required=True, help="the line before which it ends")
    parser.add_argument("--title", default="A terminal's recording")
    parser.add_argument("--rows", type=int, default=32, help="height; what is longer scrolls")
    parser.add_argument("--wait-max", type=float, default=3.0)
    parser.add_argument(
        "--stay", type=float, default=8.0, help="seconds for which the last frame stays"
    )
    options = parser.parse_args(arguments)
    shots = part(options.recording, options.begin, options.end, options.wait_max)
    width = json.loads(options.recording.read_text().splitlines()[0])["width"]
    options.picture.write_text(svg(shots, options.title, options.stay, width, options.rows))


if __name__ == "__main__":
    main()
