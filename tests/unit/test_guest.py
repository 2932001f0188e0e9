"""Parsing the output of a guest, and ending one that hangs."""

import sys
from pathlib import Path

from hpmmap_guest.guest import HANGS, _Session, _with_monitor

SAID = (
    b"[    1.0] a driver\nHPMMAP-GUEST-OUTPUT:n\na result\n"
    b"HPMMAP-GUEST-DMESG-BEGIN:n\nin the log\nHPMMAP-GUEST-DMESG-END:n\nHPMMAP-GUEST-EXIT:3:n\n"
)


def follow(said):
    seen = []
    session = _Session([], Path("/nonexistent"), "n", lambda stream, line: seen.append((stream, line)))
    for stream, data in said:
        session._feed(stream, data)
    return session, seen


def test_the_script_writes_to_its_port():
    driver, rest = SAID.split(b"\n", 1)
    session, seen = follow([("console", driver + b"\n"), ("stdout", rest), ("console", b"late\n")])
    assert seen == [("console", "[    1.0] a driver"), ("stdout", "a result"), ("console", "late")]
    assert (session.stdout, session.dmesg, session.exit_status) == (["a result"], ["in the log"], 3)


def test_the_script_writes_to_the_console():
    # The fallback of virtme-ng's init on a slow guest.
    session, seen = follow([("console", SAID)])
    assert seen == [("console", "[    1.0] a driver"), ("stdout", "a result")]
    assert (session.stdout, session.dmesg, session.exit_status) == (["a result"], ["in the log"], 3)
    assert "in the log" in session.console


# Stands in for QEMU: prints a line on the console for each key from the monitor.
MONITOR = """
import json, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1] + "/qmp")
server.listen()
print("last words", file=sys.stderr, flush=True)
monitor, _ = server.accept()
lines = monitor.makefile("rwb", buffering=0)
lines.write(b'{"QMP": {}}\\n')
for line in lines:
    request = json.loads(line)
    if request["execute"] == "send-key":
        keys = [key["data"] for key in request["arguments"]["keys"]]
        print("keys", *keys, file=sys.stderr, flush=True)
    lines.write(b'{"return": {}}\\n')
"""


def ended(tmp_path, monkeypatch, command, reason):
    """The result of a guest that is ended for this reason after its first output."""
    monkeypatch.setattr("hpmmap_guest.guest._STATE_SECONDS", 5)
    said = []
    watch = lambda: reason if said else None  # noqa: E731
    session = _Session(command, tmp_path, "n", lambda stream, line: said.append(line), watch)
    return session.run(timeout=100, boot_timeout=100)


def test_a_guest_that_hangs_says_what_its_tasks_do_and_is_ended(tmp_path, monkeypatch):
    result = ended(tmp_path, monkeypatch, [sys.executable, "-c", MONITOR, str(tmp_path)], HANGS + "run 3")
    assert not result.ok and result.reason == "it hangs: run 3" and result.exit_status is None
    assert result.state == [f"keys alt sysrq {letter}" for letter in "8wt"]
    assert result.console.splitlines()[0] == "last words"


def test_a_guest_that_cannot_be_asked_is_ended_all_the_same(tmp_path, monkeypatch):
    command = ["bash", "-c", "echo word >&2; exec sleep 1000"]
    result = ended(tmp_path, monkeypatch, command, HANGS + "run 3")
    assert result.reason == "it hangs: run 3" and result.state == []
    # This one is fine.
    result = ended(tmp_path, monkeypatch, command, "interrupted")
    assert result.reason == "interrupted" and result.state == [] and result.seconds < 100


def test_a_guest_with_a_monitor_answers_its_keys(tmp_path):
    command = _with_monitor(["run", "--x"], tmp_path)
    assert command[0] == "run" and command[-1] == "--x" and "sysrq_always_enabled" in command
    # Maximum length of the name of a socket.
    long = tmp_path / ("x" * 100)
    assert _with_monitor(["run"], long) == ["run"]
