#!/usr/bin/env python3
"""A Dockerfile as its instructions and stages.

    dockerfile.py packages STAGE... <Dockerfile     the Debian packages that stages install"""

import re
import sys


def instructions(text):
    """(keyword, arguments) of each instruction, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = []
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            keyword, _, arguments = line.strip().partition(" ")
            found.append((keyword.upper(), " ".join(arguments.split())))
    return found


class Stage:
    def __init__(self, base, name):
        self.base, self.name, self.instructions = base, name, []

    def of(self, keyword):
        return [arguments for word, arguments in self.instructions if word == keyword]

    def packages(self):
        """What apt-get install is given."""
        names = []
        for command in " && ".join(self.of("RUN")).split("&&"):
            words = command.split()
            if words[:1] == ["apt-get"] and "install" in words:
                names += [word for word in words[words.index("install") + 1:] if not word.startswith("-")]
        return names


def stages(text):
    """{name: Stage} in order. What comes before the first FROM belongs to none."""
    found = {}
    for keyword, arguments in instructions(text):
        if keyword == "FROM":
            base, _, name = arguments.partition(" AS ")
            stage = found[name] = Stage(base, name)
        elif found:
            stage.instructions.append((keyword, arguments))
    return found


def main():
    of = stages(sys.stdin.read())
    print(*sorted({package for name in sys.argv[2:] for package in of[name].packages()}), sep="\n")


if __name__ == "__main__":
    main()
