#!/usr/bin/env python3
"""The plot of the first page: how many times Redis's figure is reached, from the tables of RESULTS.md.

    overview.py [--check]        writes overview.svg beside this file; --check: says whether it is up to date
"""

import html
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(os.path.dirname(HERE), "RESULTS.md")
PLOT = os.path.join(HERE, "overview.svg")

# (heading in RESULTS.md, what the bars say of it)
SECTIONS = [("The whole comparison over shared memory", "shared memory"),
            ("The comparison over verbs", "SoftRoCE"),
            ("Over TCP, against Redis", "TCP")]
FIGURE = re.compile(r"\| \d+ \| (?P<what>(?:GETs/s|PUTs/s|YCSB-[A-F]|keys in a GiB).*?),? / Redis \| (?P<median>[\d.]+) \|"
                    r" (?P<least>[\d.]+)-(?P<most>[\d.]+) \|")

LEAST, MOST = 0.2, 50
LEFT, WIDTH, ROW, TOP, BOTTOM = 400, 440, 21, 34, 30
TITLE = "Operations per second and keys in a GiB, times those of Redis over loopback TCP"
GAIN, LOSS = "#2166ac", "#d6604d"


def figures(text):
    """[(over, what, median, least, most)] in the order of SECTIONS."""
    found = []
    for heading, over in SECTIONS:
        section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        for row in FIGURE.finditer(section[1]):
            found.append((over, row["what"], *(float(row[name]) for name in ("median", "least", "most"))))
    return found


def at(ratio):
    share = (math.log(ratio) - math.log(LEAST)) / (math.log(MOST) - math.log(LEAST))
    return LEFT + WIDTH * min(max(share, 0), 1)


def text(x, y, words, anchor="start", **more):
    given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{given}>{html.escape(words)}</text>'


def bar(y, over, what, median, least, most):
    begin, end = sorted((at(1), at(median)))
    middle = y + ROW / 2 - 2
    yield text(LEFT - 12, y + 12, f"{what}, {over}", "end")
    yield (f'<rect x="{begin:.0f}" y="{y}" width="{end - begin:.0f}" height="{ROW - 6}" '
           f'fill="{GAIN if median >= 1 else LOSS}"/>')
    yield f'<path d="M{at(least):.0f} {middle:.0f}H{at(most):.0f}" stroke="#222"/>'
    yield text(LEFT + WIDTH + 12, y + 12, f"{median:g} times" + (", slower" if median < 1 else ""))


def draw(rows):
    height = TOP + ROW * len(rows) + BOTTOM
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 140}" height="{height}" '
             'font-family="sans-serif" font-size="13">',
             f"<title>{TITLE}</title>",
             '<rect width="100%" height="100%" fill="white"/>',
             text(20, 20, TITLE, font_weight="bold")]
    for tick in (0.2, 0.5, 1, 2, 5, 10, 20, 50):
        lines.append(f'<path d="M{at(tick):.0f} {TOP - 4}V{height - BOTTOM + 4}" '
                     f'stroke="{"#222" if tick == 1 else "#ddd"}"/>')
        lines.append(text(at(tick), height - BOTTOM + 20, f"{tick:g}", "middle"))
    for number, row in enumerate(rows):
        lines += bar(TOP + ROW * number, *row)
    return "\n".join([*lines, "</svg>", ""])


def main(arguments):
    with open(RESULTS, encoding="utf-8") as file:
        made = draw(figures(file.read()))
    if arguments == ["--check"]:
        with open(PLOT, encoding="utf-8") as file:
            return 0 if file.read() == made else "overview.svg is not of RESULTS.md: run overview.py"
    if arguments:
        return "usage: overview.py [--check]"
    with open(PLOT, "w", encoding="utf-8") as file:
        file.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
