"""Starts processes of a host's AstrBot, forked off one that has its libraries loaded.

Invariant: a process is known by a pid that no other one can get before its end was asked for.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_SERVER = Path(__file__).with_name("fork_server.py")


class Nursery:
    """The fork server of one interpreter; it ends with the tests."""

    def __init__(self, python: Path) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        env = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
        # A thread of a library would not be there after the fork.
        env |= {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with theirs:
            self._server = subprocess.Popen(
                [str(python), "-P", "-W", "ignore", str(_SERVER), str(theirs.fileno())],
                env=env,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self.close)

    def spawn(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], log: int
    ) -> Process:
        """Start `astrbot <arguments>`; what it prints goes to the open file `log`."""
        theirs, ours = os.pipe()
        try:
            order = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}
            return Process(self, self.ask(order, theirs, log), ours)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)

    def ask(self, order: Mapping[str, Any], *fds: int) -> Any:
        """Send an order and wait for its answer."""
        with self._lock:
            socket.send_fds(self._control, [json.dumps(order).encode()], fds)
            answer = b""
            while not answer.endswith(b"\n"):
                more = self._control.recv(4096)
                if not more:
                    raise RuntimeError("the fork server has ended")
                answer += more
        return json.loads(answer)

    def close(self) -> None:
        """End the server; processes that still run see their input end, and end too."""
        self._control.close()
        self._server.wait()


class Process:
    """A process of AstrBot: what `subprocess.Popen` offers of it."""

    def __init__(self, nursery: Nursery, pid: int, stdin: int) -> None:
        self.pid = pid
        self._nursery = nursery
        self._stdin: int | None = stdin
        self._status: int | None = None

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        if self._status is None:
            self._status = self._nursery.ask({"poll": self.pid})
        if self._status is not None and self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None
        return self._status

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Wait for its end.

        Raises:
            TimeoutError: it did not end in time.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} did not end in {timeout_seconds} s")
            time.sleep(0.01)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once and wait for that."""
        self.send_signal(signal.SIGKILL)
        self.wait()


@cache
def nursery(python: Path) -> Nursery:
    """The one of this interpreter."""
    return Nursery(python)
