"""libhpmmap_mpi without the module: shared memory stands for windows, and groups of ranks for hosts (fake_windows.c).

The scenario mpi_hosts runs the same programs over windows.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "build/unit"
LIBRARIES = ROOT / "build/lib"
PROGRAMS = ROOT / "build/tests-vm"


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def mpi(request):
    name = request.param
    if not shutil.which(f"mpicc.{name}") or not shutil.which(f"mpirun.{name}"):
        pytest.skip(f"mpicc.{name} and mpirun.{name} are not installed")
    programs = [PROGRAMS / f"{program}.{name}" for program in ("mpi_errors", "mpi_hosts")]
    helpers = [UNIT / f"fake_windows.{name}.so", UNIT / f"mpi_groups.{name}"]
    for directory, out, targets in [
        ("lib", LIBRARIES, [LIBRARIES / name / "libhpmmap_mpi.so"]),
        ("tests/vm/programs", PROGRAMS, programs),
        ("tests/unit", UNIT, helpers),
    ]:
        command = ["make", "--silent", "-C", ROOT / directory, f"OUT={out}", *targets]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return name


def said(mpi, ranks, on_each, program, *args, **more):
    """Run a program on hosts that have on_each ranks each."""
    variables = {
        "LD_PRELOAD": f"{UNIT}/fake_windows.{mpi}.so:{LIBRARIES}/{mpi}/libhpmmap_mpi.so",
        "FAKE_HOSTS": on_each,
        "HPMMAP_MPI_MIN_BYTES": 1,
    } | more
    options = []
    for variable, value in variables.items():
        options += ["-x", f"{variable}={value}"] if mpi == "openmpi" else ["-genv", variable, str(value)]
    env = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    where = UNIT if program == "mpi_groups" else PROGRAMS
    command = [f"mpirun.{mpi}", *options, "-n", ranks, where / f"{program}.{mpi}", *args]
    ran = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=300, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def test_an_error_of_one_rank_alone(mpi):
    status, out, err = said(mpi, 3, 2, "mpi_errors")
    assert (status, out) == (0, "3 ranks, 0 failures\n"), err


@pytest.mark.parametrize(("ranks", "on_each"), [(3, 2), (3, 3)])
def test_results_are_those_of_the_library(mpi, ranks, on_each):
    # Some of the collectives need more memory than ranks reserve.
    status, out, err = said(mpi, ranks, on_each, "mpi_hosts", "50", "2000000", "5", "one-thread")
    assert (status, out) == (0, f"{ranks} ranks, 0 failures\n"), err


@pytest.mark.parametrize(
    ("case", "ranks", "on_each"),
    [
        # Rank 1 frees a communicator when rank 0 has, which is not to wait.
        ("order", 3, 3),
        ("order", 4, 2),
        # Not by the function of C; and with a callback that uses the communicator.
        ("by-pmpi", 3, 3),
        ("callback", 3, 2),
        ("disconnect", 3, 3),
        ("many", 2, 2),
        ("handler", 2, 2),
        ("inter", 3, 2),
        # Callbacks of MPI_COMM_SELF: rank 1 waits for what that of rank 0 sends; and when all groups have ended.
        ("finalize", 2, 2),
        ("finalize-late", 2, 2),
    ],
)
def test_communicators(mpi, case, ranks, on_each):
    status, out, err = said(mpi, ranks, on_each, "mpi_groups", case)
    assert (status, out) == (0, "0 failures\n"), err


def test_windows_onto_pool_memory_alone_are_not_used(mpi):
    status, out, err = said(mpi, 2, 2, "mpi_groups", "pools", FAKE_POOLS_ONLY=1)
    assert (status, out) == (0, "0 failures\n"), err
