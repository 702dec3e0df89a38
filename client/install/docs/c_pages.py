#!/usr/bin/env python3
"""Makes the manual pages of the interface in C out of its header.

    c_pages.py c.h DIRECTORY

rkv_c.3 has the comment at the head and the types. Each paragraph of the header with functions in it
becomes a page, which is named after the first of them; the others lead there.
"""

import os
import re
import sys
import textwrap

sys.dont_write_bytecode = True  # the sources stay as they are
from comments import blocks, is_code, text_of, title_of  # noqa: E402

BEGIN, END = '#ifdef __cplusplus\nextern "C" {\n#endif\n', "/* NOLINTEND"
DATE = "November 28, 2026"
PART = re.compile(r"(/\*.*?\*/)\n|((?:[^\n]*\\\n)*[^\n]*)\n", re.S)


def running(text):
    """Running text: a sentence begins a line, and no line is taken for a request."""
    text = re.sub(r"`([^`]+)`", r"\\fI\1\\fP", text.replace("\\", "\\e"))
    text = re.sub(r"\b(rkv_\w+)\(\)", r"\\fB\1\\fP()", text)
    sentences = re.split(r"(?<=[.?]) (?=[A-Z])", text)
    lines = [line for one in sentences for line in textwrap.wrap(one, 78, break_on_hyphens=False)]
    return ["\\&" + line if line.startswith((".", "'")) else line for line in lines]


def literal(lines):
    return [".Bd -literal -offset indent", *(line.replace("\\", "\\e") for line in lines), ".Ed"]


def prose(lines):
    out, listed = [], False
    for kind, *content in blocks(lines):
        if listed != (kind == "item"):
            out.append(".El" if listed else ".Bl -dash -compact")
            listed = not listed
        if kind == "code":
            names = [line.replace("-", "\\-") for line in running(" ".join(content[0]))]
            out += literal(content[0]) if is_code(content[0]) else [".Bd -ragged -offset indent", *names, ".Ed"]
        elif kind == "item":
            out += [".It", *running(content[1])]
        else:
            out += [".Pp", *running(content[0])]
    return out + [".El"] * listed


class Paragraph:
    """Declarations without an empty line between them."""

    def __init__(self, text):
        self.functions = {}  # name: prototype
        self.types = []      # lines of code
        self.about = []      # (names of functions, lines of a comment)
        statement, covers_all = "", False
        for comment, code in PART.findall(text + "\n"):
            if comment and not statement:
                covers_all = covers_all or comment.startswith("/* Each ")
                self.about.append(([], [text_of(line) for line in comment.split("\n")]))
                continue
            statement += (comment or code) + "\n"
            if not statement.startswith("#define") and not re.search(r"[;](\s*/\*.*\*/)?\s*$", code):
                continue
            if statement.count("{") == statement.count("}"):
                self.declare(statement.rstrip("\n"), covers_all)
                statement = ""

    def declare(self, statement, covers_all):
        if not statement.startswith("RKV_C_EXPORT"):
            self.types += statement.split("\n")
            return
        prototype, _, remark = statement.removeprefix("RKV_C_EXPORT ").partition(";")
        name = re.search(r"(\w+)\(", prototype)[1]
        self.functions[name] = " ".join(prototype.split())
        if remark.strip():
            self.about.append(([name], [text_of(remark.strip())]))
            self.about.append(([], []))
        elif self.about and not (covers_all and len(self.about) == 1):
            self.about[-1][0].append(name)
            if covers_all:
                self.about.append(([], []))


def synopsis(paragraph):
    out = [".In rkv/c.h"]
    if paragraph.types:
        out += literal(paragraph.types)
    for prototype in paragraph.functions.values():
        returned, name, arguments = re.fullmatch(r"(.*?)(\w+)\((.*)\)", prototype).groups()
        out += [f".Ft {returned.strip()}", f".Fo {name}",
                *(f'.Fa "{argument}"' for argument in arguments.split(", ")), ".Fc"]
    return out


def description(paragraph):
    """The comments of a paragraph: what is of all functions or of a type, then of single ones."""
    general = [about for about in paragraph.about if not about[0] and about[1]]
    single = [about for about in paragraph.about if about[0] and about[1]]
    out = [line for _, text in general for line in prose(text)]
    if single:
        out += [".Bl -tag -width Ds"]
        for names, text in single:
            out += [".It " + " , ".join(f"Fn {name}" for name in names), *prose(text)]
        out += [".El"]
    return out


def page(name, names, title, *sections):
    lines = [f".Dd {DATE}", f".Dt {name.upper()} 3", ".Os", ".Sh NAME",
             *(f".Nm {one}" + " ," * (one != names[-1]) for one in names), f".Nd {title}"]
    for heading, content in sections:
        lines += [f".Sh {heading}", *content]
    return re.sub(r"(\n\.(?:Sh|Ss|It) .*)\n\.Pp", r"\1", "\n".join(lines)) + "\n"


def see(names):
    names = sorted(names)
    return [f".Xr {name} 3" + " ," * (name != names[-1]) for name in names]


def pages(header):
    """The pages: name, text."""
    head, body = header.split("*/", 1)
    head = [text_of(line) for line in head.split("\n")]
    body = body[body.index(BEGIN) + len(BEGIN):body.index(END)]
    title, text = "rkv in C: version", []
    found, main = {}, []
    for part in re.split(r"\n{2,}", body.strip()):
        part = re.sub(r"^/\* NOLINTBEGIN.*\n", "", part)
        if part.startswith("/* ----"):
            title, text = title_of([text_of(line) for line in part.split("\n")])
            main += [f".Ss \\&{title[0].upper()}{title[1:]}", *prose(text)]
            continue
        paragraph = Paragraph(part)
        names = list(paragraph.functions)
        if not names:
            main += description(paragraph) + literal(paragraph.types)
            continue
        main += [".Pp", "Described in", *see(names[:1])]
        main[-1] += " :"
        main += [f".Fn {name}" + (" ," if name != names[-1] else " .") for name in names]
        found[names[0]] = page(names[0], names, title, ("SYNOPSIS", synopsis(paragraph)),
                               ("DESCRIPTION", prose(text) + description(paragraph)),
                               ("SEE ALSO", see(["rkv_c"])))
        found.update((name, f".so man3/{names[0]}.3\n") for name in names[1:])
    summary, rest = head[0].rstrip("."), head[1:]
    groups = [name for name, content in found.items() if not content.startswith(".so")]
    found["rkv_c"] = page("rkv_c", ["rkv_c"], summary, ("SYNOPSIS", [
        ".In rkv/c.h", ".Pp", ".Dl cc program.c $(pkg-config --cflags --libs rkv)"]),
        ("DESCRIPTION", prose(rest) + main), ("SEE ALSO", see(groups)))
    return found


def main():
    source, directory = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    for name in os.listdir(directory):
        if name.endswith(".3"):
            os.remove(os.path.join(directory, name))
    with open(source, encoding="utf-8") as header:
        for name, text in pages(header.read()).items():
            with open(os.path.join(directory, f"{name}.3"), "w", encoding="utf-8") as out:
                out.write(text)


if __name__ == "__main__":
    main()
