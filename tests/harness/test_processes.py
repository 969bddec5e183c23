"""No child outlives its parent, whichever way the parent ends."""

import os
import signal
import subprocess
import sys

import pytest

from harness.ports import free_ports
from harness.processes import Process, ProcessError, is_alive, stop_all
from harness.waiting import PATIENCE_S, wait_until

PARENT = """
import signal, sys, time
from pathlib import Path
from harness.processes import Process
# A shell that starts its jobs in the background makes them ignore SIGINT, and we would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
child = Process("sleep", ["/bin/sleep", "600"], Path(sys.argv[1]), {})
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""


def sleeper(tmp_path, *command):
    process = Process(
        "sleeper", list(command or ("/bin/sleep", "600")), tmp_path / "log", {"PATH": os.environ["PATH"]}
    )
    process.start()
    return process


def wait_gone(pid):
    wait_until(lambda: not is_alive(pid), f"the end of {pid}")


def test_stop_ends_it(tmp_path):
    process = sleeper(tmp_path)
    pid = process.pid
    process.stop()
    assert process.pid is None
    assert not is_alive(pid)


def test_stop_insists(tmp_path):
    process = sleeper(tmp_path, "/bin/sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 1; done")
    pid = process.pid
    wait_until(lambda: "deaf" in process.tail(), "the shell")
    stop_all([process], grace_s=0.2)
    assert not is_alive(pid)


def test_check_shows_the_end_of_the_log(tmp_path):
    process = sleeper(tmp_path, "/bin/sh", "-c", "echo bad flag; exit 3")
    wait_until(lambda: process.pid is None, "its end")
    with pytest.raises(ProcessError, match=r"exit code 3(.|\n)*bad flag"):
        process.check()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help exists on Linux only")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_children_die_with_their_parent(tmp_path, number):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    try:
        child = int(parent.stdout.readline())
        parent.send_signal(number)
        parent.wait(timeout=PATIENCE_S)
        wait_gone(child)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_free_ports_differ():
    assert len(set(free_ports("127.0.0.1", 20))) == 20


def test_a_port_is_given_once_whoever_asks():
    """Nobody has it between its choice and its use: neither another of our processes nor an outgoing connection."""
    own = set(free_ports("127.0.0.1", 20)) | set(free_ports("127.0.0.1", 20))
    assert len(own) == 40
    ask = (
        "from harness import ports\n"
        f"ports.OURS = {sorted(own)}\n"
        "try: print(ports.free_ports('127.0.0.1', 1))\n"
        "except ports.NoPortError: print('none')"
    )
    command = [sys.executable, "-c", ask]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "none\n"
