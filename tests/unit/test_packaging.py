"""The service that makes the pools at boot."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"

# Writes down what it is told; has no node 9.
HPMMAP = """#!/bin/sh
echo "$*" >>"$0.log"
case "$*" in *"--node 9 "*) exit 1 ;; esac
"""


def pools(tmp_path, text):
    """Run `pools add` on @text: its status, errors, and the calls of hpmmap."""
    program = tmp_path / "hpmmap"
    program.write_text(HPMMAP)
    program.chmod(0o755)
    conf = tmp_path / "pools"
    conf.write_bytes(text)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HPMMAP_POOLS_CONF": str(conf)}
    ran = subprocess.run(
        [PACKAGING / "pools", "add"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    log = tmp_path / "hpmmap.log"
    return ran.returncode, ran.stderr.replace(f"{conf}:", ""), log.read_text().splitlines() if log.exists() else []


def call(node, size):
    return f"pool add --up-to --node {node} --size {size}"


def test_the_last_line_may_have_no_end(tmp_path):
    assert pools(tmp_path, b"# two\n\n0 1G\n 1\t2G") == (0, "", [call(0, "1G"), call(1, "2G")])


def test_one_line_that_fails_does_not_keep_others_from_being_done(tmp_path):
    status, errors, calls = pools(tmp_path, b"9 1G\n0 2G\n")
    assert (status, errors) == (1, "1: the pool of node 9 has not become 1G\n")
    assert calls == [call(9, "1G"), call(0, "2G")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"0\n", '1: "0  " is not "NODE SIZE"'),
        (b"\n0 1G more\n", '2: "0 1G more" is not "NODE SIZE"'),
        (b"--all 1G\n", '1: "--all" is no number of a node'),
        (b"$(id) 1G", '1: "$(id)" is no number of a node'),
        (b"0 1G\n0 2G\n", "2: node 0 has a line already"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path, text, error):
    status, errors, _ = pools(tmp_path, text)
    assert (status, errors) == (1, f"{error}\n")


def test_any_file_is_done_or_refused(tmp_path):
    random = bytes((i * 167 + 13) % 256 for i in range(4096))
    status, errors, _ = pools(tmp_path, random + b"\n0 1G")
    assert status == 1 and errors


def test_a_file_that_is_missing_is_an_error(tmp_path):
    env = os.environ | {"HPMMAP_POOLS_CONF": str(tmp_path / "none")}
    ran = subprocess.run([PACKAGING / "pools", "add"], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode != 0 and str(tmp_path / "none") in ran.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_unit_may_do_little():
    unit = PACKAGING / "hpmmap-pools.service"
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    level = re.search(r"exposure level for \S+: (\d+\.\d)", ran.stdout)
    if not level:
        pytest.skip(f"systemd-analyze cannot look at it: {ran.stderr.strip()}")
    assert float(level[1]) <= 2.0, ran.stdout
