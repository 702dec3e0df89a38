"""Programs under test, for tests in Python: runs a program, or keeps a kvserver running."""

import os
import subprocess
import time


def run(*command, **settings):
    """Returns the output of a command; raises AssertionError with the output if it fails."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **settings)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Server:
    """A kvserver, ready when the constructor returns: over shared memory, TCP, or verbs at the
    address of the VM's device. The sockets of shared memory are in `scratch`; RKV_SHM_DIR names it
    for every program that this process starts later."""

    def __init__(self, program, scratch, *arguments, ready_within_s=60, transport="shm", port=7471):
        os.environ["RKV_SHM_DIR"] = scratch
        if transport != "shm":
            arguments = ("--no-auth", *arguments)
        host = os.environ["RKV_RDMA_ADDRESS"] if transport == "verbs" else "127.0.0.1"
        self.address = f"{host}:{port}"  # over shared memory it names the sockets
        self.log_path = os.path.join(scratch, "kvserver.log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [program, "--transport", transport, "--listen", self.address, "--memory", "32MiB",
                 *arguments], stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + ready_within_s
        while "kvserver ready" not in self.log():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError(f"kvserver does not get ready:\n{self.log()}")
            time.sleep(0.01)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def stop(self):
        """Sends SIGTERM and returns the exit status."""
        self.process.terminate()
        return self.process.wait(60)
