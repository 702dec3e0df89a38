#!/usr/bin/env python3
"""Kvservers in containers, over this machine's RDMA device or over TCP, shown at work. Three as one
store: real records loaded and read back, YCSB's workload b, one server killed - only its keys fail - and
started again, every record compared. Or, with --replicated, three that keep the same data, and an etcd:
real records, YCSB's workload a, the primary killed in the middle, everything that was acknowledged
compared. All is taken down at the end, whatever that is."""

import argparse
import contextlib
import signal
import sys

sys.dont_write_bytecode = True  # the sources stay as they are

import replicated
import sharded
from machinery import (FAILED, PROJECT, SIGNALS, USAGE, Device, Ended, Failed, Unfit, check_docker, end_by_signal,
                       ignore_signals, leftovers, take_down)
from store import METRICS_OFFSET, TRANSPORTS, say


ETCD_PORT = 2379
LOOPBACK = "127.0.0.1"


class Parser(argparse.ArgumentParser):
    """A mistake is one sentence."""

    def error(self, message):
        self.exit(USAGE, f"cluster: {message}; see ./run cluster --help\n")


def parse_options():
    parser = Parser(prog="./run cluster", description=__doc__)
    parser.add_argument("file", metavar="FILE", nargs="?",
                        help="records: a Debian package index, TSV or JSON lines; default: the index that apt keeps here")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end")
    # Check all options, print FILE if there is one, and do nothing more.
    parser.add_argument("--find-file", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--down", action="store_true", help="only take down what --keep has left")
    parser.add_argument("--replicated", action="store_true", help="a replicated group of three and an etcd")
    parser.add_argument("--transport", metavar="|".join(TRANSPORTS), default="verbs",
                        help=f"verbs (the default): an RDMA device; tcp: TCP on {LOOPBACK}, which is not RDMA and needs no device")
    parser.add_argument("--port", type=int,
                        help=f"port of the first server (default: {sharded.FIRST_PORT}, and {replicated.FIRST_PORT} with --replicated); "
                             "the others have the next two. With --replicated each server has two ports, one after the other. "
                             "Metrics and status pages are 2000 higher")
    parser.add_argument("--etcd-port", type=int, help=f"port of etcd, which takes the next one too (default: {ETCD_PORT})")
    parser.add_argument("--memory", default="512MiB", help="memory of each server")
    parser.add_argument("--timeout", default="5s", help="timeout of a client's operation")
    parser.add_argument("--recordcount", type=int, default=10_000, help="records of the benchmark")
    parser.add_argument("--operations", type=int, default=50_000, help="operations of the benchmark")
    parser.add_argument("--threads", type=int, default=2, help="threads of the benchmark")
    parser.add_argument("--base-image", metavar="IMAGE", help="image of Debian 12 to build on (default: debian:12-slim)")
    parser.add_argument("--programs", metavar="DIR",
                        help="directory of built programs, such as build/release/bin; default: they are "
                             "compiled in a container")
    options, rest = parser.parse_known_intermixed_args()  # FILE stands before, between or behind the options
    if any(argument.startswith("-") for argument in rest):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        parser.error(f"one FILE with records, not {len(rest) + 1}: {' '.join([options.file, *rest])}")
    if options.etcd_port is not None and not options.replicated:
        parser.error("--etcd-port is for --replicated: without it there is no etcd")
    if options.transport not in TRANSPORTS:
        parser.error(f"--transport needs {' or '.join(TRANSPORTS)}, not '{options.transport}'")
    kind = replicated if options.replicated else sharded
    options.port = kind.FIRST_PORT if options.port is None else options.port
    options.etcd_port = ETCD_PORT if options.etcd_port is None else options.etcd_port
    if not 1 <= options.etcd_port <= 65534:
        parser.error("--etcd-port needs 1 to 65534")
    port_max = 65535 - METRICS_OFFSET - kind.PORTS_ABOVE
    if not 1 <= options.port <= port_max:
        parser.error(f"--port needs 1 to {port_max}")
    if options.file is None and not options.down and not options.find_file:
        parser.error("FILE with records is missing")
    for name in "recordcount", "operations", "threads":
        if getattr(options, name) < 1:
            parser.error(f"--{name} needs 1 or more")
    return options


def read_records(path):
    try:
        with open(path, "rb") as records:
            return records.read()
    except OSError as error:
        print(f"cluster: {path} cannot be read: {error.strerror}", file=sys.stderr)
        sys.exit(USAGE)


def run(options):
    if options.down:
        check_docker()
        take_down()
        return 0
    records = read_records(options.file)
    check_docker()
    if leftovers():
        raise Unfit(f"containers of {PROJECT} exist already: `./run cluster --down` removes them")
    device = Device()
    with contextlib.ExitStack() as at_end:  # from the last to the first, each whatever became of the others
        at_end.callback(device.remove)
        at_end.callback(take_down)
        at_end.callback(ignore_signals)
        if options.transport == "tcp":
            address = LOOPBACK
            say(f"TCP on {address}, which is not RDMA: the servers' processors answer READs")
        else:
            device.find_or_make()
            address = device.address
            say(f"RDMA device {device.name}, address {address}" + (" (created for this run)" if device.made else ""))
        make = replicated.ReplicatedGroup if options.replicated else sharded.ShardedStore
        store = make(options, address)
        status = store.demonstrate(records)
        if options.keep:
            store.how_to_use()
            at_end.pop_all()
    return status


def complain(problem):
    """In the order in which things went wrong: the taking down comes last."""
    if isinstance(problem.__context__, (Failed, Ended)):
        complain(problem.__context__)
    text = "ended by a signal" if isinstance(problem, Ended) else problem
    print(f"cluster: {text}", file=sys.stderr)


def main():
    options = parse_options()
    if options.find_file:
        if options.file is not None:
            print(options.file)
        return 0
    for number in SIGNALS:
        signal.signal(number, end_by_signal)
    try:
        return run(options)
    except Failed as problem:
        complain(problem)
        return problem.exit_status
    except (OSError, ValueError, KeyError) as problem:
        print(f"cluster: {type(problem).__name__}: {problem}", file=sys.stderr)
        return FAILED
    except Ended as ended:
        complain(ended)
        return 128 + ended.args[0]


if __name__ == "__main__":
    sys.exit(main())
