"""A directory with a Debian of its own: made by debootstrap from the mirror that this machine's apt is
configured with, and entered with a /proc, /sys, /dev/shm and /dev/pts of its own. Needs root (or sudo that asks
nothing) and the network."""

import os
import shlex
import shutil

from programs import run

AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]


def mirror():
    """(address, code name) of the Debian that apt has here."""
    for line in run("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)",
                    "Identifier: Packages").splitlines():
        address, release, component, origin = line.split(" ", 3)
        if component == "main" and origin == "Debian" and "-" not in release:
            return address, release
    raise AssertionError("apt has no Debian mirror configured here")


def missing_tool():
    """None, or what is missing to make such a directory."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    return None if shutil.which("debootstrap") else "debootstrap is missing: ./run install-deps"


def make(root, release, address):
    """Makes it, with what Debian calls minbase, and the names of hosts that this machine knows."""
    run(*AS_ROOT, "debootstrap", "--variant=minbase", release, root, address)
    for path in "/etc/resolv.conf", "/etc/hosts":
        if os.path.exists(path):
            run(*AS_ROOT, "cp", "-L", path, root + path)


def inside(root, script):
    """The command that runs a shell script in it; processes that the script leaves behind end with it."""
    steps = ["mount -t proc proc {0}/proc", "mount -t sysfs sysfs {0}/sys", "mount -t tmpfs tmpfs {0}/dev/shm",
             "mount -t devpts -o newinstance,ptmxmode=666 devpts {0}/dev/pts", "exec chroot {0} /bin/sh -c {1}"]
    return [*AS_ROOT, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "unshare", "--mount", "--pid",
            "--fork", "--kill-child", "sh", "-c", " && ".join(steps).format(shlex.quote(root), shlex.quote(script))]
