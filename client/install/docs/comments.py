"""Comments of headers as they are written here: plain text, lists and code, by indentation.

Used by doxygen_filter.py and c_pages.py.
"""

import re

ITEM = re.compile(r"( *)(-|\d+\.|[A-Z]+-\d+) +(?=\S)")

TOPIC = re.compile(r"[`\w][\w ,`.*/()]*: ")  # a line that begins what it speaks of: Threads: any.


def text_of(line):
    """A line of a comment without its marks and the space behind them."""
    line = re.sub(r"^\s*(//|/\*|\*/|\*)", "", line.rstrip())
    return re.sub(r"\s*\*/$", "", line).removeprefix(" ")


def blocks(lines):
    """("text", sentences), ("item", tag, sentences) or ("code", lines), in order."""
    found, item = [], None  # item: how far the present list item is indented
    after_blank = True
    for line in lines:
        if not line.strip():
            after_blank = True
            if found and found[-1][0] == "code":
                found[-1][1].append("")
            continue
        indent = len(line) - len(line.lstrip())
        mark = ITEM.match(line)
        if mark and len(mark[1]) < 2:
            item = indent
            found.append(["item", mark[2], line[mark.end():]])
        elif item is not None and indent > item:
            found[-1][-1] += " " + line.strip()
        elif indent >= 2:
            item = None
            if not found or found[-1][0] != "code":
                found.append(["code", []])
            found[-1][1].append(line)
        else:
            item = None
            if found and found[-1][0] == "text" and not after_blank and not (
                    found[-1][1].endswith(".") and TOPIC.match(line)):
                found[-1][1] += " " + line.strip()
            else:
                found.append(["text", line.strip()])
        after_blank = False
    for block in found:
        if block[0] == "code":
            margin = min(len(line) - len(line.lstrip()) for line in block[1] if line)
            block[1] = "\n".join(line[margin:] for line in block[1]).rstrip().split("\n")
    return found


def is_code(lines):
    """Whether indented lines are code, and not a table or a list of words."""
    return any(";" in line for line in lines)


def title_of(lines):
    """The title of a section, which begins with ---- and ends with its first sentence or line, and
    the lines behind it."""
    first = lines[0].strip("- ")
    title, stop, rest = first.partition(". ")
    if not stop and len(lines) > 1 and lines[1].strip():  # the sentence goes on
        title, stop, rest = " ".join([first, *lines[1:]]).partition(". ")
        return title.rstrip("."), [rest] if rest else []
    return title.rstrip("."), ([rest] if rest else []) + lines[1:]
