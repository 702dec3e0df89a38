#!/usr/bin/python3
"""Runs a command in a guest as if it were local: argv, environment, directory, streams, status.

    remote.py serve-port PATH           guest: one command, asked for over a virtio-serial port
    remote.py serve-tcp ADDRESS PORT    guest: any number of commands, one per connection
    remote.py run --unix PATH -- COMMAND...             host side of serve-port
    remote.py run --tcp ADDRESS PORT -- COMMAND...      client side of serve-tcp (see node2)

Why not the serial console: it mixes stdout with stderr and kernel messages, changes line ends,
and has no end. Here every byte travels in a frame: one kind byte, a length, the payload.

    guest to client:  H ready    1 stdout    2 stderr    X exit status, always the last frame
    client to guest:  R request              I stdin     E end of stdin

The guest may block when it writes; the client never blocks on the link, it always goes on reading.
So the two cannot wait for each other, and a slow reader of our stdout slows the command down.
"""

import os
import select
import signal
import struct
import sys
import time

HEADER = struct.Struct(">cI")
CHUNK_BYTES = 1 << 16
STDIN_LIMIT_BYTES = 1 << 20  # what a command has not read yet; beyond it the link is left unread
GUEST_FAILED = 125  # as env(1), nohup(1), docker(1): the tool failed, not the command
TIMED_OUT = 124  # as timeout(1)
TOOLS = "/run/softroce"  # where node2 is, inside

PASSED_NAMES = {"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "CI", "USER", "LOGNAME",
                "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS",
                "LD_LIBRARY_PATH", "LD_PRELOAD"}
PASSED_PREFIXES = ("LC_", "GTEST_", "CTEST_", "BENCHMARK_", "RKV_", "KV", "RDMAV_", "IBV_")


class LinkLost(Exception):
    """The other side is gone."""


class OutputClosed(Exception):
    """Nobody reads our stdout or stderr any more."""


def frame(kind, payload=b""):
    return HEADER.pack(kind, len(payload)) + payload


def write_all(fd, data):
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view):]
        except BlockingIOError:  # another user of the descriptor made it non-blocking
            select.select([], [fd], [])


class FrameReader:
    def __init__(self, fd):
        self.fd = fd
        self.buffer = bytearray()

    def read(self):
        """Reads once, returns the complete frames."""
        data = os.read(self.fd, CHUNK_BYTES)
        if not data:
            raise LinkLost
        self.buffer += data
        frames = []
        while len(self.buffer) >= HEADER.size:
            kind, length = HEADER.unpack_from(self.buffer)
            end = HEADER.size + length
            if len(self.buffer) < end:
                break
            frames.append((kind, bytes(self.buffer[HEADER.size:end])))
            del self.buffer[:end]
        return frames


def pack_request(directory, argv, environment):
    """Three lists of strings, none of which can hold a NUL. Few imports, as emulated Python is slow
    to start: no JSON."""
    settings = [f"{name}={value}" for name, value in environment.items()]
    fields = [directory, str(len(argv)), *argv, *settings]
    return frame(b"R", b"\0".join(map(os.fsencode, fields)))


def unpack_request(payload):
    directory, count, *rest = map(os.fsdecode, payload.split(b"\0"))
    argv, settings = rest[:int(count)], rest[int(count):]
    return directory, argv, dict(setting.split("=", 1) for setting in settings)


# ---- guest ----

class Command:
    """A child process in a session of its own, its three streams non-blocking pipes."""

    def __init__(self, argv, environment):
        os.environ.clear()  # posix_spawnp looks the program up in the PATH of *this* process
        os.environ.update(environment)
        child_in, self.stdin = os.pipe()
        self.stdout, child_out = os.pipe()
        self.stderr, child_err = os.pipe()
        pipes = ((child_in, 0), (child_out, 1), (child_err, 2))
        self.pid = os.posix_spawnp(
            argv[0], argv, os.environ, setsid=True,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them; a child must not
            file_actions=[(os.POSIX_SPAWN_DUP2, pipe, fd) for pipe, fd in pipes])
        for pipe, _ in pipes:
            os.close(pipe)
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)
        self.pidfd = os.pidfd_open(self.pid)
        self.unread = bytearray()
        self.stdin_ended = False

    def feed(self):
        """Hands over as much stdin as the command takes now."""
        try:
            while self.unread:
                del self.unread[:os.write(self.stdin, self.unread[:CHUNK_BYTES])]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the command does not want any more; that is its right
            self.unread.clear()
            self.stdin_ended = True
        if self.stdin_ended:
            os.close(self.stdin)
            self.stdin = None

    def wait(self):
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status if status >= 0 else 128 - status

    def kill(self):
        os.killpg(self.pid, signal.SIGKILL)
        self.wait()


def read_request(reader):
    """The request and the frames that came right behind it."""
    while True:
        frames = reader.read()
        if frames:
            return unpack_request(frames[0][1]), frames[1:]


def forward(source, link, kind):
    """Forwards what is there; False at the end of the stream."""
    try:
        data = os.read(source, CHUNK_BYTES)
    except BlockingIOError:
        return None
    if data:
        write_all(link, frame(kind, data))
    return bool(data)


def accept_stdin(command, frames):
    for kind, payload in frames:
        if kind == b"I" and not command.stdin_ended:
            command.unread += payload
        elif kind == b"E":
            command.stdin_ended = True
    if command.stdin is not None:
        command.feed()


def relay(command, link, reader, early):
    outputs = {command.stdout: b"1", command.stderr: b"2"}
    accept_stdin(command, early)
    while True:
        poll = select.poll()
        # Left unread, a link still reports that the peer hung up.
        poll.register(link, select.POLLIN if len(command.unread) < STDIN_LIMIT_BYTES else 0)
        poll.register(command.pidfd, select.POLLIN)
        for fd in outputs:
            poll.register(fd, select.POLLIN)
        if command.unread and command.stdin is not None:
            poll.register(command.stdin, select.POLLOUT)
        events = dict(poll.poll())
        for fd in [fd for fd in outputs if fd in events]:
            if forward(fd, link, outputs[fd]) is False:
                del outputs[fd]
        if command.pidfd in events:
            break
        if command.stdin in events:
            command.feed()
        if events.get(link, 0) & select.POLLIN:
            accept_stdin(command, reader.read())
        elif link in events:
            raise LinkLost
    # All the command wrote is in the pipes by now. Their end is not awaited: a process left in the
    # background may never close them.
    for fd, kind in outputs.items():
        while forward(fd, link, kind):
            pass


def run_request(link, reader):
    """Runs what is asked for; returns its exit status."""
    (directory, argv, environment), early = read_request(reader)
    try:
        os.chdir(directory)
    except OSError as error:
        return refuse(link, GUEST_FAILED, f"{directory} cannot be seen inside: {error.strerror}")
    try:
        command = Command(argv, environment)
    except FileNotFoundError as error:
        return refuse(link, 127, f"{argv[0]}: {error.strerror}")
    except OSError as error:
        return refuse(link, 126, f"{argv[0]}: {error.strerror}")
    try:
        relay(command, link, reader, early)
    except (LinkLost, OSError):
        command.kill()
        raise
    return command.wait()


def refuse(link, status, reason):
    write_all(link, frame(b"2", os.fsencode(f"softroce: {reason}\n")))
    return status


def serve(link):
    """One command over one link, until the client leaves."""
    reader = FrameReader(link)
    try:
        write_all(link, frame(b"H"))
        status = run_request(link, reader)
        os.sync()  # the client may end the machine as soon as it knows the status
        write_all(link, frame(b"X", b"%d" % status))
        while True:  # closing a connection with unread bytes would take the status from the client
            reader.read()
    except (LinkLost, OSError):
        pass


def serve_port(path):
    link = os.open(path, os.O_RDWR)
    while os.read(0, 1):  # until init has set up the network
        pass
    serve(link)


def serve_tcp(address, port):
    import socket
    while os.read(0, 1):
        pass
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # sessions are not waited for
    with socket.create_server((address, port), backlog=64) as server:
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                server.close()
                set_keepalive(connection)
                serve(connection.fileno())
                os._exit(0)
            connection.close()


# ---- client ----

def set_keepalive(connection):
    """A machine that died sends nothing: notice it within 10 s, with or without bytes on the way."""
    import socket
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def passed_environment():
    environment = {name: value for name, value in os.environ.items()
                   if name in PASSED_NAMES or name.startswith(PASSED_PREFIXES)}
    path = environment.get("PATH", os.defpath)
    if TOOLS not in path.split(":"):
        environment["PATH"] = f"{path}:{TOOLS}"
    return environment


def print_bytes(fd, data):
    try:
        write_all(fd, data)
    except BrokenPipeError:
        raise OutputClosed from None


def connect(family, address, deadline):
    """Connects as soon as somebody listens."""
    import socket
    while True:
        link = socket.socket(family, socket.SOCK_STREAM)
        try:
            link.settimeout(max(0.1, deadline - time.monotonic()))
            link.connect(address)
            link.settimeout(None)
            return link
        except OSError:
            link.close()
            if time.monotonic() > deadline:
                raise LinkLost from None
            time.sleep(0.05)


def await_ready(link, reader, deadline):
    if not select.select([link], [], [], max(0, deadline - time.monotonic()))[0]:
        raise LinkLost
    frames = reader.read()
    if not frames or frames[0] != (b"H", b""):
        raise LinkLost


class Stdin:
    """Our stdin, or nothing at all when it is a terminal or closed."""

    def __init__(self):
        try:
            self.open = not os.isatty(0)
        except OSError:
            self.open = False

    def next_frame(self):
        try:
            data = os.read(0, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        self.open = bool(data)
        return frame(b"I", data) if data else frame(b"E")


def exchange(link, reader, request, deadline):
    """Runs the request; returns its exit status."""
    stdin = Stdin()
    pending = bytearray(request)
    if not stdin.open:
        pending += frame(b"E")
    link.setblocking(False)
    while True:
        if time.monotonic() > deadline:
            print("softroce: stopped, its time is over", file=sys.stderr)
            return TIMED_OUT
        readable, writable, _ = select.select(
            [link] + ([0] if stdin.open and not pending else []), [link] if pending else [], [],
            None if deadline == float("inf") else max(0, deadline - time.monotonic()))
        if writable:
            del pending[:link.send(pending)]
        if 0 in readable:
            pending += stdin.next_frame()
        if link in readable:
            for kind, payload in reader.read():
                if kind == b"X":
                    return int(payload)
                print_bytes(1 if kind == b"1" else 2, payload)


def run(arguments):
    import socket
    boot_s, timeout_s = 180.0, float("inf")
    environment = passed_environment()
    family = address = lost_note = None
    while arguments and arguments[0] != "--":
        option = arguments.pop(0)
        if option == "--unix":
            family, address = socket.AF_UNIX, arguments.pop(0)
        elif option == "--tcp":
            family, address = socket.AF_INET, (arguments.pop(0), int(arguments.pop(0)))
        elif option == "--boot-seconds":
            boot_s = float(arguments.pop(0))
        elif option == "--seconds":
            timeout_s = float(arguments.pop(0))
        elif option == "--lost":
            lost_note = arguments.pop(0)
        elif option == "--set":
            name, _, value = arguments.pop(0).partition("=")
            environment[name] = value
    request = pack_request(os.getcwd(), arguments[1:], environment)
    try:
        deadline = time.monotonic() + boot_s
        link = connect(family, address, deadline)
        if family == socket.AF_INET:
            set_keepalive(link)
        reader = FrameReader(link.fileno())
        await_ready(link, reader, deadline)
        return exchange(link, reader, request, time.monotonic() + timeout_s)
    except OutputClosed:
        return 128 + signal.SIGPIPE
    except (LinkLost, OSError):
        if lost_note:  # vm.sh knows more to say
            open(lost_note, "w").close()
        else:
            print("node2: the machine ended without an exit status", file=sys.stderr)
        return GUEST_FAILED


def main(arguments):
    role = arguments.pop(0)
    if role == "serve-port":
        return serve_port(arguments[0])
    if role == "serve-tcp":
        return serve_tcp(arguments[0], int(arguments[1]))
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
