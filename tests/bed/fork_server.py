"""Run as a script by a host's interpreter: starts AstrBots without the price of their imports.

The libraries AstrBot imports take two thirds of the time of its start. Here they are imported
once; AstrBot itself is not, each one imports and runs it in a process of its own. Speaks with
`nursery.py` over the socket whose number is its argument.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading

# The dear ones; a version of AstrBot that lacks one does without.
LIBRARIES = (
    "lark_oapi",
    "anthropic",
    "openai",
    "google.genai",
    "mcp",
    "sqlmodel",
    "telegram.ext",
    "discord",
    "dashscope",
    "quart",
    "fastapi",
    "faiss",
)
_LONGEST_MESSAGE_BYTES = 1 << 16


def serve(control: socket.socket) -> None:
    """Answer until the tests are gone."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, _LONGEST_MESSAGE_BYTES, 2)
        if not message:
            return
        order = json.loads(message)
        if "poll" in order:
            pid, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = None if pid == 0 else os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                control.close()
                become_astrbot(order, *fds)
        for fd in fds:
            os.close(fd)
        control.sendall(json.dumps(answer).encode() + b"\n")


def become_astrbot(order: dict, stdin: int, log: int) -> None:
    """Go on as an AstrBot that was started in the usual way."""
    os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for fd, target in ((stdin, 0), (log, 1), (log, 2)):
        os.dup2(fd, target)
    for fd in (stdin, log):
        os.close(fd)
    # Started from a background job it would inherit an ignored SIGINT, the one it ends well on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Its standard input ends when the tests end in whatever way: then it must not stay behind.
    threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
    sys.path.insert(0, "")
    sys.argv = ["astrbot", *order["arguments"]]
    from astrbot.cli.__main__ import cli

    cli(prog_name="astrbot")


for library in LIBRARIES:
    with contextlib.suppress(ImportError):
        importlib.import_module(library)
gc.freeze()  # no collection in a child has to look at the libraries
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they end us
serve(socket.socket(fileno=int(sys.argv[1])))
