#!/usr/bin/env python3
"""Makes a manual page: a page written by hand (mdoc) in which the program's own --help fills in the
options, so that page and program cannot differ.

    manual.py PROGRAM PAGE.in > PAGE

A line @OPTIONS@ becomes the list of the program's options, @VERBS@ the list of its verbs (as
kvclient has them), each with the options of `PROGRAM VERB --help`.
"""

import re
import subprocess
import sys

ENTRY = re.compile(r"^ {1,6}(-\S.*?)(?: {2,}(\S.*))?$")  # "  -d, --device NAME   RDMA device"
CONTINUED = re.compile(r"^ {10,}(\S.*)$")
VERB = re.compile(r"^  ([a-z]+)((?: [A-Za-z\[.\]]+)*) {2,}(\S.*)$")  # "  put KEY VALUE   store a value"


def help_of(*command):
    return subprocess.run([*command, "--help"], check=True, stdout=subprocess.PIPE,
                          text=True).stdout.splitlines()


def entries(lines):
    """The options that a help text lists, as [names, text]."""
    found = []
    for line in lines:
        entry = ENTRY.match(line)
        more = CONTINUED.match(line)
        if entry:
            found.append([entry.group(1), entry.group(2) or ""])
        elif more and found:
            found[-1][1] = f"{found[-1][1]} {more.group(1)}".strip()
    return found


def plain(text):
    """As mdoc takes it in running text."""
    text = " ".join(text.split()).replace("\\", "\\e")
    return "\\&" + text if text.startswith((".", "'")) else text


def item(names):
    """".It Fl d , Fl -device Ar NAME" of "-d, --device NAME". "\\&": no word is taken for a macro."""
    words = []
    for name in names.split(", "):
        flag, _, argument = name.partition(" ")
        argument = re.sub(r"\(=.*\)", "", argument)  # cxxopts: [=sync|wal(=sync)]
        words.append(f"Fl {flag[1:]}" + (f" Ar \\&{argument}" if argument else ""))
    return ".It " + " , ".join(words)


def option_list(found):
    return [".Bl -tag -width Ds", *(line for names, text in found for line in
                                    (item(names), plain(text))), ".El"]


def verb_list(program):
    lines = [".Bl -tag -width Ds"]
    for verb, arguments, text in (m.groups() for m in map(VERB.match, help_of(program)) if m):
        own = help_of(program, verb)
        if " global options:" in own:
            own = own[:own.index(" global options:")]
        lines += [f".It Cm \\&{verb}" + "".join(f" Ar \\&{a}" for a in arguments.split()), plain(text)]
        found = entries(own)
        if found:
            lines += option_list(found)
    return [*lines, ".El"]


def main():
    program, page = sys.argv[1:]
    with open(page, encoding="utf-8") as source:
        for line in source.read().splitlines():
            if line == "@OPTIONS@":
                print("\n".join(option_list(entries(help_of(program)))))
            elif line == "@VERBS@":
                print("\n".join(verb_list(program)))
            else:
                print(line)


if __name__ == "__main__":
    main()
