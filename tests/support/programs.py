"""Programs under test, for tests in Python: run one, keep a kvserver."""

import os
import subprocess
import time


def run(*command, **settings):
    """What a command prints; an AssertionError with all of it when it fails."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **settings)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Server:
    """A kvserver over shared memory, ready when this is made. Its sockets lie in `scratch`, which
    RKV_SHM_DIR names from then on for every program started from here."""

    address = "127.0.0.1:7471"  # names the sockets

    def __init__(self, program, scratch, *arguments, ready_within_s=60):
        os.environ["RKV_SHM_DIR"] = scratch
        self.log_path = os.path.join(scratch, "kvserver.log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [program, "--transport", "shm", "--listen", self.address, "--memory", "32MiB",
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
        """SIGTERM; the exit status."""
        self.process.terminate()
        return self.process.wait(60)
