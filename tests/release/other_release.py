#!/usr/bin/env python3
"""The demonstration and the native tests on the other supported release of Debian: stable, or oldstable
where this machine has stable. They are built there, by its compiler and with its libraries, in a root
below build/other-release that is kept: the next run compiles what has changed.

    tests/release/other_release.py [ARGUMENTS of ./run test, instead of --native --preset dev]

Needs root (or sudo that asks nothing) and the network. Exit status: that of the first part that fails.
"""

import os
import re
import signal
import subprocess
import sys
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import debian_root  # noqa: E402
from debian_root import AS_ROOT  # noqa: E402
from programs import run  # noqa: E402


def other_release(address, here):
    """The code name of stable, or of oldstable where stable is what is here."""
    for suite in "stable", "oldstable":
        with urllib.request.urlopen(f"{address.rstrip('/')}/dists/{suite}/InRelease", timeout=60) as release:
            name = re.search(r"(?m)^Codename: (\S+)$", release.read().decode()).group(1)
        if name != here:
            return name
    raise AssertionError(f"{address} has no release beside {here}")


def root_of(release, address):
    """Where that release is; made whole or not at all."""
    root = os.path.join(SOURCE, "build", "other-release", release)
    if not os.path.isdir(root):
        print(f"-- making a root of Debian {release} in {root}", flush=True)
        run(*AS_ROOT, "rm", "-rf", root + ".new")
        os.makedirs(os.path.dirname(root), exist_ok=True)
        debian_root.make(root + ".new", release, address)
        run(*AS_ROOT, "mv", root + ".new", root)
    return root


def copy_tree(root):
    """The files of this tree that git knows or would add; of an earlier copy only what was built stays."""
    tree = os.path.join(root, "rkv")
    run(*AS_ROOT, "mkdir", "-p", tree)
    run(*AS_ROOT, "find", tree + "/", "-mindepth", "1", "-maxdepth", "1", "!", "-name", "build", "-exec", "rm", "-rf", "{}", "+")
    run("sh", "-c", 'git ls-files -z -co --exclude-standard | tar -c --null --ignore-failed-read -T - |'
        ' "$@" tar -x --no-same-owner -C "$0"', tree, *AS_ROOT, cwd=SOURCE)


def main():
    if missing := debian_root.missing_tool():
        sys.exit(missing)
    address, here = debian_root.mirror()
    release = other_release(address, here)
    root = root_of(release, address)
    copy_tree(root)
    tests = " ".join(sys.argv[1:]) or "--native --preset dev"
    for verb in "demo --transport shm", f"test {tests}":
        print(f"-- Debian {release}: ./run {verb}", flush=True)
        status = subprocess.call(debian_root.inside(root, f"cd /rkv && export HOME=/root && ./run {verb}"),
                                 stdin=subprocess.DEVNULL)
        if status != 0:
            sys.exit(status)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends what runs in the root too
    try:
        main()
    except (AssertionError, OSError) as failed:
        sys.exit(f"other_release: {failed}")
