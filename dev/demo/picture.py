"""The picture of the demo's output in the README, drawn from a recorded text.

docs/demo.txt has lines of a run of `make demo`, shortened by hand; `make crds` draws it.
"""

from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN = 8, 18, 16
"""Pixels of a character, of a line, and around the text."""
COLOURS = {"==": "#7fd4c1", "$": "#ffffff"}
"""Colour of lines that begin so: headings of steps, and the command."""
COLOUR = "#c8d0d8"
FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}">
<title>The output of make demo</title>
<rect width="{width}" height="{height}" rx="8" fill="#12181e"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">
{lines}
</g>
</svg>
"""


def picture(text: str) -> str:
    """Return an SVG of a text as a terminal shows it.

    Parameters
    ----------
    text
        Lines without control characters.
    """
    lines = text.splitlines()
    drawn = "\n".join(_line(line, index) for index, line in enumerate(lines) if line)
    return FRAME.format(
        width=2 * MARGIN + WIDTH * max(map(len, lines), default=0),
        height=2 * MARGIN + HEIGHT * len(lines),
        lines=drawn,
    )


def _line(line: str, index: int) -> str:
    colour = next((shown for start, shown in COLOURS.items() if line.startswith(start)), COLOUR)
    bottom = MARGIN + HEIGHT * index + 13
    # The length is set, so that columns stand below each other in any font.
    return (
        f'<text x="{MARGIN}" y="{bottom}" fill="{colour}" xml:space="preserve" '
        f'textLength="{WIDTH * len(line)}">{escape(line)}</text>'
    )
