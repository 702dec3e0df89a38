#!/usr/bin/env python3
"""Doxygen's filter of input (Doxyfile): a header whose plain comments it reads as documentation.

    doxygen_filter.py HEADER

A comment in front of a declaration describes it. A function without a comment or a remark of its
own is described by its section (// ---- title. Text), or by the comment that it follows without an
empty line. The comment at the head of a file describes the file, and the class
that it begins with (rkv::Client: ...). What is private or protected is left as it is.
"""

import re
import sys

sys.dont_write_bytecode = True  # the sources stay as they are
from comments import blocks, is_code, text_of, title_of  # noqa: E402

SCOPE = re.compile(r"(?:typedef\s+|inline\s+)?(namespace|class|struct|union|enum|extern)\b")
NOT_DESCRIBED = re.compile(r"\s*(friend|public:|private:|protected:|static_assert|template <>|#(?!define)|})")


def escaped(text):
    """Text in which Doxygen finds no commands, HTML or links; `code` in it is code."""
    text = re.sub(r"[\\@&<>#%$]|--+|(?<!\w)::", lambda found: "\\" + found[0], text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def described(lines, indent):
    """The lines of a comment for Doxygen."""
    out = []
    for kind, *content in blocks(lines):
        if kind == "code":
            begin, end = ("@code{.cpp}", "@endcode") if is_code(content[0]) else ("@verbatim", "@endverbatim")
            out += ["", begin, *content[0], end, ""]
        elif kind == "item":
            tag = "" if content[0] == "-" else content[0] + " "
            out.append(f"  - {tag}{escaped(content[1])}")
        else:
            out += ["", escaped(content[0]), ""]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n").split("\n")
    return [f"{indent}/// {line}".rstrip() for line in text]


def bare(line):
    """Code without strings and comments."""
    return re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|/\*.*?\*/|//.*', "", line)


def without_template(statement):
    """A declaration without its template parameters and attributes."""
    statement = re.sub(r"\[\[.*?\]\]|\bRKV_(C_)?EXPORT\b", " ", statement).strip()
    while statement.startswith("template"):
        depth = 0
        for at, character in enumerate(statement):
            depth += (character == "<") - (character == ">")
            if character == ">" and depth == 0:
                break
        statement = statement[at + 1:].strip()
        statement = re.sub(r"^requires\s+\w+<[^>]*>\s*", "", statement)
    return statement


def name_of(statement):
    """What a declaration declares, and whether that is a function that is not special."""
    statement = without_template(statement)
    if SCOPE.match(statement):
        return re.findall(r"\w+", statement.split("{")[0])[-1], False
    function = re.search(r"(operator\W+|~?\w+)\s*\(", statement)
    if not function or statement.startswith(("using", "typedef", "friend", "static_assert")):
        return (re.findall(r"\w+", statement) or [""])[-1], False
    special = function.start() == 0 or re.match(r"(explicit|constexpr|virtual)\s", statement[:function.start()]) \
        and len(statement[:function.start()].split()) == 1 or function[1].startswith(("operator", "~"))
    return function[1], not special


class Filter:
    def __init__(self, lines):
        self.lines, self.out = lines, []
        self.scopes = [{"kind": "namespace", "hidden": False}]
        self.statement, self.parens = "", 0
        self.shared, self.owner, self.section = [], "", []
        self.head = []

    # ---- what is read

    def is_comment(self, at):
        return at < len(self.lines) and re.match(r"\s*(//|/\*)", self.lines[at])

    def comment_at(self, at):
        """The comment that begins at a line, and the line behind it."""
        end = at
        if "/*" in self.lines[at]:
            while "*/" not in self.lines[end]:
                end += 1
            return [text_of(line) for line in self.lines[at:end + 1]], end + 1
        while end < len(self.lines) and self.lines[end].lstrip().startswith("//"):
            end += 1
        return [text_of(line) for line in self.lines[at:end]], end

    def statement_at(self, at):
        """The declaration that begins at a line, and whether it has a remark behind it."""
        text, parens = "", 0
        for line in self.lines[at:]:
            code = bare(line)
            parens += code.count("(") - code.count(")")
            text += " " + code.strip()
            if parens == 0 and re.search(r"[;{}]|,\s*$", code):
                return text, bool(re.search(r"\S\s+(//|/\*)", line))
        return text, False

    def line_at(self, at):
        return self.lines[at] if at < len(self.lines) else ""

    # ---- what is written

    def close_group(self):
        if self.scopes[-1].pop("group", None):
            self.out.append("/// @}")

    def comment(self, at, text, end):
        raw, follower = self.lines[at:end], self.line_at(end)
        indent = re.match(r"\s*", raw[0])[0]
        scope = self.scopes[-1]
        goes_on = re.search(r"\S\s+//", self.lines[at - 1]) and not self.lines[at - 1].startswith(indent)
        if scope["hidden"] or self.statement or goes_on or "NOLINT" in raw[0]:
            self.out += raw
            return
        if text[0].startswith("----"):
            self.close_group()
            title, self.section = title_of(text)
            self.out += [f"{indent}/// @name {escaped(title[0].upper() + title[1:])}",
                         *(described(self.section, indent) if any(self.section) else []), f"{indent}/// @{{", ""]
            scope["group"] = True
            title = f"{title[0].upper()}{title[1:]}."
            self.shared, self.owner = ([title], "") if follower.strip() else ([], "")
            self.section = [title, "", *self.section] if any(self.section) else []
            return
        if not follower.strip() or NOT_DESCRIBED.match(follower):
            self.out += raw
            return
        self.out += described(text, indent)
        self.is_described = True
        if not (self.shared and self.shared[0].startswith("Each ")):  # that one is of all that follow
            name, is_function = name_of(self.statement_at(end)[0])
            if follower.startswith("#define"):
                name, is_function = re.findall(r"\w+", follower)[1], False
            self.shared, self.owner = text, name + "()" * is_function

    def remark(self, line):
        """A line of code whose remark behind it describes what is declared there."""
        if self.parens or self.scopes[-1]["hidden"] or not re.search(r"[;,}\w]\s*$", bare(line)):
            return line
        if re.match(r"\s*(#|}|public|private)", line):
            return line
        line = re.sub(r"(\S\s+)//\s?(.*)$", lambda found: f"{found[1]}///< {escaped(found[2])}", line)
        return re.sub(r"(\S\s+)/\* (.*) \*/$", lambda found: f"{found[1]}/**< {escaped(found[2])} */", line)

    def describe(self, at):
        """Documentation of the declaration that begins at a line, if it has none of its own."""
        scope = self.scopes[-1]
        text, has_remark = self.statement_at(at)
        name, is_function = name_of(text)
        indent = re.match(r"\s*", self.lines[at])[0]
        if self.is_described or scope["hidden"]:
            return
        if scope["kind"] == "namespace" and re.match(r"\s*(class|struct)\b[^;]*{", without_template(text)) and \
                self.head and re.match(rf"(rkv::)?{name}: ", self.head[0]):
            self.out += described(self.head, indent)
        elif is_function and not has_remark and self.section:
            self.out += described(self.section, indent)
        elif is_function and not has_remark and self.shared:
            lead = [f"Described with {self.owner}.", ""] if self.owner else []
            self.out += described(lead + self.shared, indent)

    def code(self, at):
        line = self.lines[at]
        scope = self.scopes[-1]
        if scope["kind"] != "body" and not self.statement:
            access = re.match(r"\s*(public|protected|private):", line)
            if access:
                self.close_group()
                self.shared, self.section = [], []
                if scope.pop("cond", None):
                    self.out.append("/// @endcond")
                scope["hidden"] = access[1] != "public"
                self.out.append(line)
                if access[1] == "protected":
                    scope["cond"] = True
                    self.out.append("/// @cond")
                return
            self.is_dropped = line == "template <>" and self.statement_at(at)[0].endswith(";")
            if not line.lstrip().startswith("}") and not self.is_dropped:
                self.describe(at)
        self.is_described = False
        before = scope["kind"]
        for character in bare(line):
            self.step(character)
        self.statement = self.statement.strip() and self.statement + " "
        visible = before != "body" and self.scopes[-1]["kind"] != "body"
        if not self.is_dropped:  # a specialization of a member, which is described there
            self.out.append(self.remark(line) if visible else line)

    def step(self, character):
        kind = self.scopes[-1]["kind"]
        self.parens += (character == "(") - (character == ")") if kind != "body" else 0
        if self.parens and kind != "body":
            self.statement += character
        elif character == "{":
            found = SCOPE.match(without_template(self.statement)) if kind != "body" else None
            outside = self.shared, self.owner, self.section
            if found:
                self.shared, self.owner, self.section = [], "", []
            self.scopes.append({"kind": found[1] if found else "body", "outside": outside,
                                "hidden": self.scopes[-1]["hidden"] or found is not None and found[1] == "class"})
            if found and found[1] in ("extern", "namespace"):
                self.scopes[-1]["kind"] = "namespace"
            self.statement = ""
        elif character == "}":
            self.close_group()
            if self.scopes[-1].pop("cond", None):
                self.out.append("/// @endcond")
            outside = self.scopes.pop()["outside"]
            if kind != "body":
                self.shared, self.owner, self.section = outside
            self.statement = ""
        elif kind != "body":
            self.statement = "" if character == ";" or character == "," and kind == "enum" else self.statement + character

    def run(self):
        self.is_described = self.is_dropped = False
        self.head, at = self.comment_at(0)
        self.out += ["/// @file", *described(self.head, "")]
        while at < len(self.lines):
            line = self.lines[at]
            if self.scopes[-1]["kind"] != "body" and self.is_comment(at):
                text, end = self.comment_at(at)
                self.comment(at, text, end)
                at = end
            elif line.startswith("#"):
                while line.endswith("\\"):
                    self.out.append(line)
                    at += 1
                    line = self.lines[at]
                self.out.append(line)
                at += 1
                self.is_described = False
            elif not line.strip():
                self.shared, self.owner = [], ""
                self.out.append(line)
                at += 1
            else:
                self.code(at)
                at += 1
        return "\n".join(self.out) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(Filter(header.read().splitlines()).run())
