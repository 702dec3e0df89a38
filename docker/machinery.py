"""What cluster.py needs of docker, docker-compose and the RDMA device; each complaint is one sentence."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
PROJECT = "rkv-cluster"
LABEL = f"label=com.docker.compose.project={PROJECT}"

UNEQUAL, USAGE, UNFIT, FAILED = 1, 2, 3, 4
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
END_WITHIN_S = 20  # of a program that is asked to end


class Failed(Exception):
    """It cannot go on; the text is one sentence for the user."""

    exit_status = FAILED


class Unfit(Failed):
    """This machine lacks something that is needed."""

    exit_status = UNFIT


class Ended(BaseException):
    """By a signal; no error, and nothing must take it for one."""


def ignore_signals():
    """The taking down is not left half done."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def end_by_signal(number, _frame):
    ignore_signals()
    raise Ended(number)


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def sentence_of(text):
    """What a program of ours said last, among what compose says around it."""
    own = [line for line in text.splitlines() if line.startswith(("kvclient: ", "kvbench: "))]
    return own[-1] if own else last_line(text)


def captured(*command, **settings):
    return subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, **settings)


@contextlib.contextmanager
def group_of(command, **settings):
    """A program in a process group of its own, which has ended when the block is left by an
    exception, such as a signal's: what compose starts would else go on making containers."""
    # A signal waits until the program is known here, or it would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    process = None
    try:
        process = subprocess.Popen(
            command, start_new_session=True, text=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS), **settings)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        yield process
        for stream in process.stdin, process.stdout, process.stderr:
            if stream is not None:
                stream.close()
    except BaseException:
        if process is not None:
            end_group(process)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def run_as_group(command, **settings):
    """As subprocess.run, of such a program."""
    with group_of(command, **settings) as process:
        printed, said = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, printed, said)


def end_group(process):
    """The program first, which ends what it has started; then whatever is left of its group."""
    process.terminate()
    try:
        process.communicate(timeout=END_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def docker(*arguments):
    """What a docker command prints."""
    done = captured("docker", *arguments)
    if done.returncode != 0:
        raise Failed(f"`docker {' '.join(arguments)}` failed: {last_line(done.stderr)}")
    return done.stdout


# ---- the RDMA device ----

def native(function):
    """A function of the tests' shell scripts that know RDMA devices."""
    scripts = os.path.join(SOURCE, "tests", "softroce")
    return captured("bash", "-c", f'source "$0/common.sh" && source "$0/native.sh" && {function}', scripts)


def device_and_address():
    done = native("native_device")
    return done.stdout.split() if done.returncode == 0 else None


class Device:
    """An RDMA device of this machine, one made for the occasion if there is none."""

    def __init__(self):
        self.made = False
        self.name = self.address = None

    def find_or_make(self):
        found = device_and_address()
        if found is None:
            self.make()
            found = device_and_address()
            if found is None:
                raise Unfit("rxe0 is there, but has no active port with an IPv4 address")
        self.name, self.address = found

    def make(self):
        if native("native_rxe_possible").returncode != 0:
            raise Unfit("no RDMA device with an active port and an IPv4 address is here, and this kernel "
                        "has no rdma_rxe: `./run cluster --vm` does all of it in a small VM, "
                        "`./run cluster --transport tcp` without a device")
        if captured("bash", "-c", "PATH=$PATH:/usr/sbin:/sbin; command -v rdma").returncode != 0:
            raise Unfit("the program rdma, which makes RDMA devices, is missing: apt-get install iproute2")
        self.made = True  # even if it is interrupted
        done = native("create_native_rxe")
        if done.returncode != 0:
            raise Unfit("no RDMA device is here and none can be created "
                        f"({last_line(done.stderr)}): as root, `./run softroce --native` creates one")

    def remove(self):
        if self.made:
            native("as_root rdma link delete rxe0")  # of no effect if it is not there
            self.made = False


# ---- docker and compose ----

def check_docker():
    if shutil.which("docker") is None:
        raise Unfit("docker is missing: apt-get install docker.io docker-compose")
    done = captured("docker", "info", "--format", "{{.ServerVersion}}")
    if done.returncode == 0 and done.stdout.strip():
        return  # whatever it warns of
    if "permission denied" in done.stderr:
        raise Unfit("docker's daemon refuses this user's commands: use sudo, or join the group docker")
    raise Unfit(f"docker's daemon does not answer ({last_line(done.stderr)}): start it, "
                "as with `systemctl start docker`")


def find_compose():
    """`docker compose` where there is one, else docker-compose."""
    if captured("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is not None:
        return ["docker-compose"]
    raise Unfit("neither `docker compose` nor docker-compose is here: apt-get install docker-compose")


class Compose:
    """The services of compose.yml, as a project of our own."""

    def __init__(self, environment):
        self.base = find_compose() + ["-p", PROJECT, "-f", os.path.join(HERE, "compose.yml")]
        # Of docker-compose 1.29: an answer of the daemon may take more than its 60 s on a busy machine.
        self.environment = {"COMPOSE_HTTP_TIMEOUT": "600", **os.environ, **environment}

    def run(self, *arguments):
        """A command that says itself what it does, on standard error."""
        done = run_as_group([*self.base, *arguments], stdin=subprocess.DEVNULL, stdout=2, env=self.environment)
        if done.returncode != 0:
            raise Failed(f"`{' '.join(self.base[:-4] + list(arguments))}` ended with {done.returncode}")

    def tool_command(self, service, *arguments):
        return [*self.base, "run", "--rm", "-T", "--no-deps", service, *arguments]

    def tool(self, service, *arguments, feed=b"", may_fail=False):
        """What the loader or the benchmark prints, with `feed` on its standard input."""
        with tempfile.TemporaryFile() as file:
            file.write(feed)
            file.seek(0)
            done = run_as_group(self.tool_command(service, *arguments), stdin=file, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment)
        if done.returncode != 0 and not may_fail:
            raise Failed(f"{service}: `{' '.join(arguments)}` ended with {done.returncode}: "
                         f"{sentence_of(done.stderr)}")
        return done.stdout

    def beside(self, service, *arguments):
        """The same beside other steps, as a `with` statement has it: the process, whose standard
        streams are pipes. Its complaints come among its output."""
        return group_of(self.tool_command(service, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, env=self.environment)

    def container(self, service):
        found = docker("ps", "-aq", "--filter", LABEL,
                       "--filter", f"label=com.docker.compose.service={service}").split()
        if len(found) != 1:
            raise Failed(f"there are {len(found)} containers of {service}, not one")
        return found[0]


def states(containers):
    """('running', 'healthy', exit status) of each."""
    printed = docker("inspect", "--format", "{{.State.Status}} {{.State.Health.Status}} {{.State.ExitCode}}",
                     *containers)
    words = (line.split() for line in printed.splitlines())
    return [(status, health, int(code)) for status, health, code in words]


def log_of(container):
    done = captured("docker", "logs", container)
    return done.stdout + done.stderr


def last_check(container):
    """What the last health check said."""
    said = docker("inspect", "--format", "{{range .State.Health.Log}}{{json .Output}}\n{{end}}", container)
    checks = [json.loads(line) for line in said.splitlines() if line]
    return sentence_of(checks[-1]) if checks else "no check has completed yet"


def await_healthy(servers, limit_s):
    """servers: {name: container}. Until docker's health check calls all of them healthy."""
    end = time.monotonic() + limit_s
    waiting = dict(servers)
    while waiting:
        names = list(waiting)
        for name, (status, health, code) in zip(names, states(waiting.values()), strict=True):
            if status == "exited":
                kind = Unfit if code == 3 else Failed  # kvserver's own exit status
                raise kind(f"{name} did not start: {last_line(log_of(waiting[name]))}")
            if health == "healthy":
                del waiting[name]
        if waiting and time.monotonic() > end:
            raise Failed(f"{', '.join(waiting)} not healthy within {limit_s} s; the last check of the first: "
                         f"{last_check(next(iter(waiting.values())))}")
        if waiting:
            time.sleep(1)  # docker's command itself takes an emulated processor a while


def leftovers():
    return docker("ps", "-aq", "--filter", LABEL).split()


def take_down():
    """Containers, those of interrupted tools too, and volumes. Images stay."""
    own = {"start_new_session": True}  # a second Ctrl-C is not for these
    for what, listing, removal in (
            ("containers", ("ps", "-aq"), ("rm", "-f", "-v")),
            ("volumes", ("volume", "ls", "-q"), ("volume", "rm", "-f"))):
        listed = captured("docker", *listing, "--filter", LABEL, **own)
        if listed.returncode != 0:
            raise Failed(f"cannot list the {what} that are left: docker does not answer "
                         f"({last_line(listed.stderr)}): remove them later by `./run cluster --down`")
        found = listed.stdout.split()
        if found and captured("docker", *removal, *found, **own).returncode != 0:
            raise Failed(f"not all {what} could be removed: docker {' '.join(removal)} {' '.join(found)}")


def import_programs(directory, image):
    """An image that has nothing but programs that were built already, for the Dockerfile's PROGRAMS."""
    names = ["kvserver", "kvclient", "kvbench"]
    missing = [name for name in names if not os.access(os.path.join(directory, name), os.X_OK)]
    if missing:
        raise Unfit(f"no {missing[0]} in {directory}: ./run build release")
    with tempfile.TemporaryDirectory(prefix="rkv-cluster-") as scratch:
        folder = os.path.join(scratch, "programs")
        os.mkdir(folder)
        for name in names:
            shutil.copy(os.path.join(directory, name), folder)
            captured("strip", os.path.join(folder, name))  # smaller, where there is a strip
        archive = os.path.join(scratch, "programs.tar")
        tar = captured("tar", "-C", scratch, "--owner=0", "--group=0", "-cf", archive, "programs")
        if tar.returncode != 0:
            raise Failed(f"tar: {last_line(tar.stderr)}")
        docker("import", archive, image)
