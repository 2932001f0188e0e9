# SPDX-License-Identifier: GPL-2.0
"""The mini-applications compute what is known, alone and with two ranks."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1]
APPS = BENCH.parent / "build/bench/apps"
# The smallest that takes part in everything: options, and the checksum of its result.
KNOWN = {
    "minicg": (["--size", "8"], "d9738afeff499d9f"),
    "minife": (["--size", "8"], "eec54e92a4ea3160"),
    "minimd": (["--size", "6"], "dca6bf0175daed9d"),
    "miniamr": (["--size", "6", "--iterations", "40"], "734d85bce21c4ce5"),
    "minihydro": (["--size", "12", "--iterations", "20"], "cc3256f22fdbc019"),
    "phases": (["--size", "24"], "9f658c7cef81698c"),
}
# Problems of the NAS Parallel Benchmarks, the same for all ranks together.
FIXED = {"ep": ([], "4ebe63c927b1cab1"), "ft": ([], "6b131adcf25a0d53")}
MEMBERS = {
    "app": str,
    "ranks": int,
    "size": int,
    "iterations": int,
    "seconds": float,
    "verified": bool,
    "residual": float,
    "checksum": str,
    "minflt": int,
    "majflt": int,
    "rss_peak_bytes": int,
}
# What phases says beside these.
MORE = {"touches": dict, "calls": dict, "pages": dict, "aside_ns": int}
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_pml": "ob1",
}


@pytest.fixture(scope="module", autouse=True)
def built():
    subprocess.run(["make", "--silent", "-C", BENCH, "apps"], check=True)


def run(app: str, *options: str, ranks: int = 1) -> subprocess.CompletedProcess:
    # One rank without mpirun: that is a way to run them, too.
    launcher = [shutil.which("mpirun.openmpi") or "mpirun", "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, str(APPS / app), *options]
    for _ in range(3):
        # Jobs share a directory below TMPDIR otherwise, and remove it at their end.
        with tempfile.TemporaryDirectory() as directory:
            environment = ENVIRONMENT | {"TMPDIR": directory}
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        # Within MPI_Finalize, after the report: see bench/apps/README.md.
        if not launcher or "Segmentation fault" not in done.stderr:
            break
    return done


def report(app: str, *options: str, ranks: int = 1, status: int = 0) -> dict:
    done = run(app, "--json", *options, ranks=ranks)
    assert done.returncode == status, done
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout
    found = json.loads(lines[0])
    members = MEMBERS | (MORE if app == "phases" else {})
    assert {name: type(value) for name, value in found.items()} == members
    assert found["app"] == app and found["ranks"] == ranks
    return found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("app", KNOWN | FIXED)
def test_results_are_known_and_do_not_depend_on_ranks(app, ranks):
    options, checksum = (KNOWN | FIXED)[app]
    found = report(app, "--strong", *options, ranks=ranks)
    assert found["verified"] and found["checksum"] == checksum
    assert found["residual"] < 1e-3 and found["seconds"] > 0
    assert found["rss_peak_bytes"] > 1 << 20


@pytest.mark.parametrize("app", KNOWN)
def test_the_size_is_of_each_rank_and_the_seed_matters(app):
    options, checksum = KNOWN[app]
    two = report(app, *options, "--iterations", "150", ranks=2)
    assert two["verified"] and two["checksum"] != checksum
    other = report(app, *options, "--iterations", "150", "--seed", "2", ranks=2)
    assert other["verified"] and other["checksum"] != two["checksum"]


@pytest.mark.parametrize("app", ["minicg", "minife"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_solve_that_has_not_ended_is_not_verified(app, ranks):
    found = report(app, "--size", "8", "--iterations", "2", ranks=ranks, status=1)
    assert not found["verified"] and found["residual"] > 1e-10


@pytest.mark.parametrize(
    "app, right, wrong",
    [
        ("minicg", "k == z ? 27 : -1", "k == z ? 27.1 : -1"),
        ("minife", "a->value[e] * exact(problem, x, y, z)", "a->value[e] * 1.01 * exact(problem, x, y, z)"),
        ("minimd", "#define TIME_STEP	0.005", "#define TIME_STEP	0.02"),
        ("miniamr", "sum * part / (ratio * ratio)", "sum * part / ratio"),
        ("minihydro", "fluxes[k][at] - fluxes[k][before]", "fluxes[k][at] * 1.01 - fluxes[k][before]"),
        ("ep", "2 * numbers[2 * i] - 1, y", "2 * numbers[2 * i] - 0.999, y"),
        ("ft", "exp(-4 * ALPHA", "exp(-3.99 * ALPHA"),
        ("phases", "words[i] = from + i;", "words[i] = from + i + (i == 99);"),
    ],
)
def test_a_wrong_computation_is_not_verified(app, right, wrong, tmp_path):
    source = (BENCH / "apps" / f"{app}.c").read_text()
    assert source.count(right) == 1
    (tmp_path / f"{app}.c").write_text(source.replace(right, wrong))
    parts = ["app.c", "cg.c"] if app in ("minicg", "minife") else ["app.c"]
    sources = [tmp_path / f"{app}.c", *(BENCH / "apps" / part for part in parts)]
    program = tmp_path / app
    compiler = ["mpicc.openmpi", "-O2", "-std=gnu11", f"-I{BENCH / 'apps'}"]
    subprocess.run([*compiler, "-o", program, *sources, "-lm"], check=True)
    options, _ = (KNOWN | FIXED)[app]
    done = run(str(program), "--json", *options)
    assert done.returncode == 1 and json.loads(done.stdout)["verified"] is False, done


@pytest.mark.parametrize("app", KNOWN)
def test_memory_is_about_what_was_asked_for(app):
    status = 1 if app in ("minicg", "minife") else 0
    least, asked = (
        report(app, *options, "--iterations", "6", status=status)["rss_peak_bytes"]
        for options in (["--size", "6"], ["--memory", "64M"])
    )
    # The least one shows what MPI needs; an object of miniamr may be a large one.
    assert 0.5 * (64 << 20) < asked - least + (4 << 20) < 1.4 * (64 << 20)


def test_each_first_touch_and_each_call_is_counted():
    size, page = 48 << 20, 4096
    found = report("phases", "--size", "48")
    touches, calls, pages = (found[name] for name in ("touches", "calls", "pages"))
    # What is made anew is touched once more; a block begins within a page.
    assert size / page < touches["count"] < 2.5 * size / page
    assert 48 < calls["count"] < 48 * 256
    for stalls in (touches, calls):
        assert 0 < stalls["p99_ns"] <= stalls["worst_ns"] <= stalls["total_ns"]
    assert size < pages["rss_bytes"] < 1.6 * size
    assert pages["thp_bytes"] + pages["file_bytes"] <= pages["rss_bytes"] and pages["hugetlb_bytes"] == 0


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--size", "0"], "--size 0: must be a whole number from "),
        (["--size", "8x"], "--size 8x: must be a whole number from "),
        (["--iterations", "-1"], "--iterations -1: must be a whole number from 1 to 2147483647"),
        (["--memory", "1"], "--memory 1: the least size, "),
        (["--memory", "8T"], "--memory 8T: must be a whole number from "),
        (["--sise", "8"], "--sise: no such option"),
        (["8"], "8: no argument is expected"),
    ],
)
def test_wrong_options_are_named(options, complaint):
    done = run("minicg", *options)
    assert done.returncode == 2 and not done.stdout, done
    assert done.stderr.startswith(f"minicg: {complaint}") and done.stderr.count("\n") == 1, done.stderr


def test_ranks_need_something_each():
    done = run("minimd", "--strong", "--size", "6", ranks=4)
    assert done.returncode == 2
    assert "minimd: --size 6 is for at most 3 ranks, there are 4\n" in done.stderr


def test_without_json_it_is_for_people():
    done = run("minicg", "--size", "8")
    assert done.returncode == 0 and "\nverified; residual " in done.stdout
    assert "NOT VERIFIED" in run("minicg", "--size", "8", "--iterations", "1").stdout
    assert run("minicg", "--help").stdout.startswith("usage: minicg [OPTION]...\n")
