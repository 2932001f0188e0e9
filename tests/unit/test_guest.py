"""How what a guest says is taken apart."""

from pathlib import Path

from hpmmap_guest.guest import _Session

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
    # What virtme-ng's init falls back to on a slow guest.
    session, seen = follow([("console", SAID)])
    assert seen == [("console", "[    1.0] a driver"), ("stdout", "a result")]
    assert (session.stdout, session.dmesg, session.exit_status) == (["a result"], ["in the log"], 3)
    assert "in the log" in session.console
