"""libhpmmap_shmem without the module: programs that call every function, as jobs of 1 to 8 PEs, and how jobs end.

The scenario shmem runs the same programs over windows.
"""

import fcntl
import itertools
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "lib/shmem"
LIBRARY = ROOT / "build/lib/libhpmmap_shmem.so"
PROGRAMS = ROOT / "build/tests-vm/shmem"
LAUNCHERS = ("OMPI_", "PMI", "MPI_", "SLURM_", "SHMEM_", "SMA_")
JOBS = itertools.count()
WRAPPED = rf"{2**64 - 1} bytes at 0x\w+ are not symmetric: not in the heap .*"
needs_fortran = pytest.mark.skipif(not shutil.which("gfortran"), reason="gfortran is not installed")

pytestmark = pytest.mark.skipif(not shutil.which("make") or not shutil.which("gcc"), reason="no compiler")


@pytest.fixture(scope="session", autouse=True)
def built():
    targets = [PROGRAMS / name for name in ("rma", "sync", "collective", "ends", "steps")]
    if shutil.which("gfortran"):
        targets.append(PROGRAMS / "fortran")
    out = [f"OUT={PROGRAMS.parent}", *map(str, targets)]
    subprocess.run(["make", "--silent", "-C", ROOT / "tests/vm/programs", *out], check=True)


def clean_env(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return env | {name: str(value) for name, value in more.items()}


def new_job():
    return f"test.{os.getpid()}.{next(JOBS)}"


def start(size, *command, world=None, ranks=None, job=None, **env):
    """Start the PEs of a job as Open MPI's mpirun does."""
    job = job or new_job()
    common = {"PMIX_NAMESPACE": job, "OMPI_COMM_WORLD_LOCAL_SIZE": size, "OMPI_COMM_WORLD_SIZE": world or size}
    return [
        subprocess.Popen(
            list(map(str, command)),
            env=clean_env(**common, OMPI_COMM_WORLD_LOCAL_RANK=rank, **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (range(size) if ranks is None else ranks)
    ]


def finish(pes, seconds=120):
    """Status, stdout and stderr of each PE."""
    try:
        return [(pe.returncode, *out) for pe, out in [(pe, pe.communicate(timeout=seconds)) for pe in pes]]
    finally:
        for pe in pes:
            pe.kill()


def outcome(size, *command, **env):
    ended = finish(start(size, *command, **env))
    return [pe[0] for pe in ended], "".join(pe[1] for pe in ended), "".join(pe[2] for pe in ended)


@pytest.fixture(autouse=True)
def nothing_stays():
    tables = set(Path("/dev/shm").glob("hpmmap-*shmem.ompi.test.*"))
    yield
    assert set(Path("/dev/shm").glob("hpmmap-*shmem.ompi.test.*")) <= tables


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("program", ["rma", "sync", "collective"])
def test_every_function(program, size):
    assert outcome(size, PROGRAMS / program) == ([0] * size, f"{size} PEs, 0 failures\n", "")


@needs_fortran
@pytest.mark.parametrize("size", [1, 4])
def test_fortran(size):
    status, out, err = outcome(size, PROGRAMS / "fortran")
    assert (status, err) == ([0] * size, "")
    assert sorted(out.splitlines()) == [f"PE {pe} right" for pe in range(size)]


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_mpirun_starts_it(mpi):
    mpirun = shutil.which(f"mpirun.{mpi}")
    if not mpirun:
        pytest.skip(f"mpirun.{mpi} is not installed")
    env = clean_env(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, OMPI_MCA_rmaps_base_oversubscribe=1)
    ran = subprocess.run([mpirun, "-n", "3", PROGRAMS / "sync"], env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "3 PEs, 0 failures\n"), ran.stderr


def test_slurm_starts_it():
    job = {"SLURM_JOB_ID": f"test.{os.getpid()}", "SLURM_STEP_ID": 0, "SLURM_STEP_TASKS_PER_NODE": 2}
    job["SLURM_STEP_NUM_TASKS"] = 2
    pes = [
        subprocess.Popen(
            [PROGRAMS / "sync"], env=clean_env(**job, SLURM_LOCALID=rank), stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    assert [pe.communicate(timeout=120)[0] for pe in pes] == ["2 PEs, 0 failures\n", ""]


def test_mpich_starts_it_behind_a_shell():
    mpirun = shutil.which("mpirun.mpich")
    if not mpirun:
        pytest.skip("mpirun.mpich is not installed")
    shell = ["sh", "-c", '"$0"; exit $?', PROGRAMS / "sync"]
    ran = subprocess.run([mpirun, "-n", "3", *shell], env=clean_env(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "3 PEs, 0 failures\n"), ran.stderr


def test_jobs_with_long_names_are_apart():
    name = f"{new_job()}/{'x' * 220}"
    jobs = [start(2, PROGRAMS / "ends", "finalize", job=f"{name}{job}") for job in "ab"]
    assert ["".join(pe[1] for pe in finish(job)) for job in jobs] == ["1\n2\n"] * 2


@pytest.mark.parametrize(
    "env",
    [
        {"OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_SIZE": 2},
        {"OMPI_COMM_WORLD_LOCAL_RANK": 0, "PMIX_NAMESPACE": "test"},
        {"PMI_SIZE": 2, "PMI_RANK": 0},
    ],
)
def test_a_job_without_a_name_or_size_is_refused(env):
    ran = subprocess.run([PROGRAMS / "sync"], env=clean_env(**env), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(
        "shmem_init: a launcher has started this PE, but says neither its job nor how many PEs "
    )


def test_alone_it_is_one_pe():
    ran = subprocess.run([PROGRAMS / "rma"], env=clean_env(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1 PEs, 0 failures\n", "")


def test_a_job_of_several_hosts_is_refused():
    status, out, err = outcome(2, PROGRAMS / "sync", world=6)
    assert (status, out) == ([1, 1], "")
    line = "shmem_init: 4 of the job's 6 PEs are on other hosts, and this library reaches one host only: "
    assert err == (line + "start all PEs on one, or link with another OpenSHMEM\n") * 2


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("pe", "shmem_long_p: PE 1: there is no PE 4: there are PEs 0 to 3"),
        ("negative-pe", "shmem_long_g: PE 1: there is no PE -1: there are PEs 0 to 3"),
        ("address", r"shmem_long_p: PE 1: 8 bytes at 0x\w+ are not symmetric: not in the heap .*"),
        ("beyond", r"shmem_putmem: PE 1: 67108865 bytes at 0x\w+ are not symmetric: not in the heap .*"),
        ("wraps", rf"shmem_long_put: PE 1: {WRAPPED}"),
        ("stride", rf"shmem_long_iput: PE 1: {WRAPPED}"),
        ("stride-wraps", rf"shmem_long_iget: PE 1: {WRAPPED}"),
        ("reduce-wraps", rf"shmem_long_sum_reduce: PE 1: {WRAPPED}"),
        ("free", r"shmem_free: PE 1: 0x\w+ was not allocated in the symmetric heap, or was freed"),
        ("context", "shmem_ctx_long_p: PE 1: the context is SHMEM_CTX_INVALID"),
        ("set", "shmem_barrier: PE 1: active set of 5 PEs from 0 on, log of the stride 0: there are PEs 0 to 3"),
    ],
)
def test_a_wrong_call_ends_the_job(case, line):
    status, out, err = outcome(4, PROGRAMS / "ends", case)
    assert (status, out) == ([1] * 4, "")
    lines = err.splitlines()
    assert re.fullmatch(line, lines.pop(1))
    # The others wait in a barrier, for a variable and for a lock.
    ended = r"shmem: PE [023]: PE \d has ended without shmem_finalize\(\), so this PE ends, too"
    assert len(lines) == 3 and all(re.fullmatch(ended, one) for one in lines)


@pytest.mark.parametrize(("case", "size", "status"), [("killed", 4, -9), ("killed-tests", 5, -9), ("exits", 4, 0)])
def test_no_pe_waits_for_one_that_has_ended(case, size, status):
    begin = time.monotonic()
    got, out, err = outcome(size, PROGRAMS / "ends", case)
    assert (got, out) == ([1, status] + [1] * (size - 2), "")
    assert len(re.findall("so this PE ends, too", err)) == size - 1
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("status", [0, 7])
def test_global_exit_ends_all_with_its_status(status):
    assert outcome(4, PROGRAMS / "ends", "global-exit", status) == ([status] * 4, "", "")


def test_exit_handlers_run_while_other_threads_go_on():
    assert outcome(3, PROGRAMS / "ends", "threads") == ([7] * 3, "flushed at exit\n", "")


def test_no_pe_waits_for_exit_handlers_of_another():
    status, out, err = outcome(3, PROGRAMS / "ends", "slow-exit")
    assert (status, out) == ([1] * 3, "PE 0 has ended\n")
    assert "there is no PE 3" in err


def test_finalize_gives_all_memory_back():
    assert outcome(3, PROGRAMS / "ends", "finalize") == ([0] * 3, "1\n2\n3\n", "")


def table_of(job):
    return Path(f"/dev/shm/hpmmap-{os.geteuid()}-shmem.ompi.{job}.0")


def test_a_table_of_processes_whose_numbers_others_have_is_a_leftover():
    job = new_job()
    (killed,) = start(2, PROGRAMS / "ends", "finalize", ranks=[0], job=job)
    time.sleep(1)
    killed.kill()
    killed.wait()
    table = bytearray(table_of(job).read_bytes())
    # struct table: PE 0's number.
    assert table[28:32] == killed.pid.to_bytes(4, "little")
    table[28:32] = os.getpid().to_bytes(4, "little")
    table_of(job).write_bytes(table)
    assert outcome(2, PROGRAMS / "ends", "finalize", job=job) == ([0] * 2, "1\n2\n", "")


def test_a_table_of_another_size_is_a_leftover():
    job = new_job()
    table_of(job).write_bytes(b"0123456789")
    assert outcome(2, PROGRAMS / "ends", "finalize", job=job) == ([0] * 2, "1\n2\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_a_table_that_another_user_has_locked_is_refused():
    job = new_job()
    with table_of(job).open("w") as table:
        try:
            os.fchown(table.fileno(), 65534, -1)
            fcntl.flock(table, fcntl.LOCK_EX)
            status, _, err = outcome(2, PROGRAMS / "ends", "finalize", job=job)
            # One PE needs none.
            assert outcome(1, PROGRAMS / "ends", "finalize", job=job) == ([0], "1\n", "")
        finally:
            table_of(job).unlink()
    assert status == [1, 1]
    assert f"shmem_init: PE 0 of 2, {table_of(job)}: this table is another user's\n" in err


@pytest.mark.parametrize(("mpi", "rank"), [("openmpi", "OMPI_COMM_WORLD_LOCAL_RANK"), ("mpich", "MPI_LOCALRANKID")])
def test_other_users_cannot_guess_the_name_of_a_table(mpi, rank):
    mpirun = shutil.which(f"mpirun.{mpi}")
    if not mpirun:
        pytest.skip(f"mpirun.{mpi} is not installed")
    env = clean_env(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, OMPI_MCA_rmaps_base_oversubscribe=1)
    # PE 1 looks while PE 0 waits for it.
    look = f'[ ${rank} = 0 ] || {{ sleep 2; ls /dev/shm; }}; exec "$0" finalize'
    command = [mpirun, "-n", "2", "sh", "-c", look, PROGRAMS / "ends"]
    names = set()
    for _ in range(2):
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        name = rf"^hpmmap-{os.geteuid()}-shmem\.(?:ompi|hydra)\.\d+\.([0-9a-f]{{16}})$"
        found = re.findall(name, ran.stdout, re.MULTILINE)
        assert len(found) == 1, ran.stdout
        names.update(found)
    assert len(names) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_file_system_of_tables_is_an_error():
    mount = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && "$@"; status=$?; ls /dev/shm; exit $status'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", PROGRAMS / "ends", "finalize"]
    pe = {"PMIX_NAMESPACE": new_job(), "OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_LOCAL_SIZE": 2}
    ran = subprocess.run(command, env=clean_env(**pe), capture_output=True, text=True, check=False)
    if "mount: " in ran.stderr or "unshare: " in ran.stderr:
        pytest.skip("mounts are not allowed here")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.fullmatch(r"shmem_init: PE 0 of 2, /dev/shm/hpmmap-0-shmem\S+: No space left on device\n", ran.stderr)


def test_a_child_is_no_pe_and_has_its_own_variables():
    status, out, err = outcome(3, PROGRAMS / "ends", "fork")
    assert (status, out) == ([0] * 3, "3 PEs, 0 failures\n")
    assert err == "shmem_long_p: shmem_init() was not called in this process\n" * 3


def test_before_init_there_are_no_calls():
    status, _, err = outcome(1, PROGRAMS / "ends", "no-init")
    assert (status, err) == ([1], "shmem_long_p: shmem_init() was not called in this process\n")


def test_a_program_of_start_pes_is_finalized_at_exit():
    assert outcome(3, PROGRAMS / "ends", "start-pes") == ([0] * 3, "7\n" * 3, "")


def test_debug_compares_sizes_and_says_how_pes_are_reached():
    status, _, err = outcome(2, PROGRAMS / "ends", "sizes", SHMEM_DEBUG=1)
    assert status == [1, 1]
    assert (
        len(re.findall(r"^shmem: PE [01] of 2: 67108864 bytes of heap at .*, by shared memory$", err, re.MULTILINE))
        == 2
    )
    assert "shmem_malloc: PE 1: 100 bytes, but 200 at PE 0: all PEs have to ask for the same\n" in err


@pytest.mark.parametrize(
    ("text", "size"),
    [("3.1m", 4 << 20), ("5M", 6 << 20), ("1g", 1 << 30), ("2097152", 2 << 20), ("2049k", 4 << 20)],
)
def test_the_size_of_the_heap(text, size):
    status, _, err = outcome(1, PROGRAMS / "ends", "start-pes", SHMEM_SYMMETRIC_SIZE=text, SHMEM_INFO=1)
    assert status == [0]
    assert f"; here {size}\n" in err


@pytest.mark.parametrize("text", ["", "20kk", "-1", "0", "1x", "100t"])
def test_a_wrong_size_of_the_heap_is_named(text):
    status, _, err = outcome(2, PROGRAMS / "sync", SHMEM_SYMMETRIC_SIZE=text)
    line = f"shmem_init: SHMEM_SYMMETRIC_SIZE is '{text}': a size such as 64M or 1.5G, at most 64T\n"
    assert (status, err) == ([1, 1], line * 2)


def test_the_old_name_of_a_variable_counts_less():
    env = {"SMA_SYMMETRIC_SIZE": "8M", "SMA_VERSION": "1"}
    _, _, err = outcome(1, PROGRAMS / "ends", "start-pes", SHMEM_INFO=1, **env)
    assert "; here 8388608\n" in err and err.startswith("HPMMAP OpenSHMEM: OpenSHMEM 1.5\n")
    _, _, err = outcome(1, PROGRAMS / "ends", "start-pes", SHMEM_INFO=1, SHMEM_SYMMETRIC_SIZE="4M", **env)
    assert "; here 4194304\n" in err


def test_a_pe_that_ends_before_all_have_come_ends_the_others():
    waiting, killed = start(3, PROGRAMS / "sync", ranks=(0, 2))
    time.sleep(1)
    killed.kill()
    assert finish([waiting])[0][0] == 1
    assert waiting.stderr.closed and killed.wait() == -9


def test_eight_bytes_are_put_by_at_most_20_instructions():
    """From the arguments to the return, executed instruction by instruction."""
    status, out, err = outcome(2, PROGRAMS / "steps")
    assert (status, err) == ([0, 0], "")
    counts = {name: int(n) for name, n in re.findall(r"^(.*): (\d+)$", out, re.MULTILINE)}
    assert counts["nothing"] == 0
    for call in ("shmem_long_p, heap", "shmem_long_p, variable", "shmem_put64, heap", "shmem_putmem, heap"):
        assert 5 < counts[call] <= 20, counts


def symbols():
    ran = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
    return {line.split()[2].split("@")[0]: line.split()[1] for line in ran.stdout.splitlines()}


def declared(header, *flags):
    """The functions whose names begin with shmem_ or pshmem_ that a header declares."""
    command = ["gcc", "-E", "-P", "-std=c99", *flags, header]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\b(p?shmem_\w+) ?\(", text))


def test_each_function_has_its_profiling_name():
    names = declared(HEADERS / "shmem.h", "-I", HEADERS)
    exported = symbols()
    assert len(names) > 3000
    assert names == {name for name in exported if re.match("p?shmem_", name)}
    for name in names:
        assert exported[name] == ("T" if name.startswith("pshmem_") else "W"), name
        assert name.startswith("pshmem_") or f"p{name}" in names
    others = {"start_pes", "_my_pe", "_num_pes", "shmalloc", "shmemalign", "shrealloc", "shfree", "HPMMAP_SHMEM_1.5"}
    assert set(exported) - names == others


def test_what_another_openshmem_declares_is_here():
    """Open MPI's header, of OpenSHMEM 1.4, is a list of names that others have made."""
    found = next(Path("/usr/lib").glob("*/openmpi/include/shmem.h"), None)
    if not found:
        pytest.skip("the header of Open MPI's OpenSHMEM is not installed")
    theirs = {name for name in declared(found, "-I", found.parent) if name.startswith("shmem_")}
    # The specification never had it.
    missing = theirs - {"shmem_broadcast"} - set(symbols())
    assert len(theirs) > 500
    assert not missing, sorted(missing)


def compiled(tmp_path, text, *flags, suffix=".c", name="program"):
    source = tmp_path / f"{name}{suffix}"
    source.write_text(text)
    compiler = "g++" if suffix == ".cc" else "gcc"
    library = ["-I", HEADERS, "-L", LIBRARY.parent, "-lhpmmap_shmem", f"-Wl,-rpath,{LIBRARY.parent}"]
    subprocess.run(
        [compiler, "-Wall", "-Wextra", "-Werror", *flags, source, "-o", tmp_path / name, *library], check=True
    )
    return tmp_path / name


def compile_and_run(tmp_path, text, *flags, suffix=".c"):
    return outcome(1, compiled(tmp_path, text, *flags, suffix=suffix))


def test_a_tool_replaces_functions(tmp_path):
    text = """
    #include <shmem.h>
    #include <stdio.h>
    static int calls;
    void shmem_long_p(long *dest, long value, int pe) { calls++; pshmem_long_p(dest, value, pe); }
    static long x;
    int main(void) {
        shmem_init();
        shmem_long_p(&x, 3, 0);
        shmem_pcontrol(1);
        printf("%d %ld\\n", calls, x);
        shmem_finalize();
    }
    """
    assert compile_and_run(tmp_path, text) == ([0], "1 3\n", "")


@pytest.mark.parametrize(
    ("suffix", "flags"), [(".cc", ["-std=c++17"]), (".c", ["-std=c99"]), (".c", ["-fno-pie", "-no-pie"])]
)
def test_languages_and_ways_to_link(tmp_path, suffix, flags):
    text = """
    #include <mpp/shmem.h>
    #include <stdio.h>
    static double x, sum; static long many[100000];
    int main(void) {
        shmem_init();
        x = 2.5;
        many[99999] = 4;
        shmem_double_sum_reduce(SHMEM_TEAM_WORLD, &sum, &x, 1);
        printf("%.1f %ld\\n", sum, shmem_long_g(&many[99999], 0));
        shmem_finalize();
        return 0;
    }
    """
    if suffix == ".cc" and not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    assert compile_and_run(tmp_path, text, *flags, suffix=suffix) == ([0], "2.5 4\n", "")


def test_other_variables_of_the_same_size_are_another_program(tmp_path):
    text = """
    #include <shmem.h>
    long first = FIRST, second = 3 - FIRST;
    int main(void) { shmem_init(); shmem_finalize(); return 0; }
    """
    one, other = (compiled(tmp_path, text, f"-DFIRST={n}", "-Wl,--build-id", name=f"program{n}") for n in (1, 2))
    copy = shutil.copy(one, tmp_path / "copy")
    for program, want in [(copy, [0, 0]), (other, [1, 1])]:
        job = new_job()
        pes = start(2, one, ranks=[0], job=job) + start(2, program, ranks=[1], job=job)
        ended = finish(pes)
        assert [pe[0] for pe in ended] == want
        assert ("runs another program" in "".join(pe[2] for pe in ended)) == (want == [1, 1])


def test_realloc_uses_the_memory_behind_a_block(tmp_path):
    text = """
    #include <shmem.h>
    #include <stdio.h>
    #define MB ((size_t)1 << 20)
    int main(void) {
        shmem_init();
        char *block = shmem_malloc(40 * MB), *other;
        block[40 * MB - 1] = 7;
        printf("%d ", shmem_realloc(block, 50 * MB) == block && block[40 * MB - 1] == 7);
        printf("%d ", shmem_realloc(block, 65 * MB) == NULL);
        printf("%d ", shmem_realloc(block, 1 * MB) == block);
        other = shmem_malloc(63 * MB);
        printf("%d ", other == block + MB);
        printf("%d ", shmem_realloc(block, 2 * MB) == NULL);
        shmem_free(block);
        shmem_free(other);
        printf("%d\\n", shmem_malloc(64 * MB) == block);
        shmem_finalize();
    }
    """
    assert compile_and_run(tmp_path, text) == ([0], "1 1 1 1 1 1\n", "")


def test_sets_and_teams_of_one_pe_are_not_counted(tmp_path):
    text = """
    #include <shmem.h>
    #include <stdio.h>
    #define TEAMS 40
    static long sync[SHMEM_REDUCE_SYNC_SIZE], work[SHMEM_REDUCE_MIN_WRKDATA_SIZE], from, to;
    int main(void) {
        shmem_team_t teams[TEAMS];
        shmem_init();
        int me = shmem_my_pe(), npes = shmem_n_pes(), wrong = 0;
        for (int i = 0; i < 31; i++) {
            from = me + i;
            shmem_long_sum_to_all(&to, &from, 1, me, i, 1, work, sync);
            wrong += to != me + i;
        }
        for (int i = 0; i < TEAMS; i++)
            for (int pe = 0; pe < npes; pe++) {
                shmem_team_t team;
                wrong += shmem_team_split_strided(SHMEM_TEAM_WORLD, pe, 1, 1, NULL, 0, &team) != 0;
                if (pe == me)
                    teams[i] = team;
            }
        for (int i = 0; i < TEAMS; i++) {
            from = me * i;
            wrong += shmem_long_sum_reduce(teams[i], &to, &from, 1) != 0 || to != me * i;
            wrong += shmem_long_collect(teams[i], &to, &from, 1) != 0 || to != me * i;
            shmem_team_destroy(teams[i]);
        }
        printf("%d\\n", wrong);
        shmem_finalize();
    }
    """
    program = compiled(tmp_path, text, "-Wno-deprecated-declarations")
    assert outcome(3, program) == ([0] * 3, "0\n" * 3, "")


def test_ten_pes_use_all_sets_that_they_have(tmp_path):
    text = """
    #include <shmem.h>
    #include <stdio.h>
    static long sync[SHMEM_REDUCE_SYNC_SIZE], work[SHMEM_REDUCE_MIN_WRKDATA_SIZE], from, to;
    int main(void) {
        shmem_init();
        int me = shmem_my_pe(), npes = shmem_n_pes(), sets = 0, wrong = 0;
        for (int log = 0; 1 << log < npes; log++)
            for (int start = 0; start < npes; start++)
                for (int size = 2; start + ((size - 1) << log) < npes; size++) {
                    int off = me - start, sum = start * size + (size * (size - 1) / 2 << log);
                    sets++;
                    if (off < 0 || off % (1 << log) || off >> log >= size)
                        continue;
                    from = me;
                    shmem_long_sum_to_all(&to, &from, 1, start, log, size, work, sync);
                    wrong += to != sum;
                }
        printf("%d %d\\n", sets, wrong);
        shmem_finalize();
    }
    """
    program = compiled(tmp_path, text, "-Wno-deprecated-declarations")
    assert outcome(10, program) == ([0] * 10, "75 0\n" * 10, "")


def test_a_pe_without_elements_need_not_have_a_source(tmp_path):
    text = """
    #include <shmem.h>
    #include <stdio.h>
    static long variable, dest[8];
    int main(void) {
        shmem_init();
        int me = shmem_my_pe(), wrong = 0;
        long *heap = shmem_malloc(sizeof(long));
        for (int odd = 0; odd < 2; odd++) {
            int mine = me % 2 == odd;
            long *source = odd ? heap : &variable;
            *source = me;
            shmem_long_collect(SHMEM_TEAM_WORLD, dest, mine ? source : NULL, mine);
            wrong += dest[0] != odd || dest[1] != 2 + odd;
        }
        shmem_long_collect(SHMEM_TEAM_WORLD, dest, NULL, 0);
        printf("%d\\n", wrong);
        shmem_finalize();
    }
    """
    assert outcome(4, compiled(tmp_path, text)) == ([0] * 4, "0\n" * 4, "")


def test_windows_lie_in_no_zone_of_a_process(tmp_path):
    """The device is a fake that shows memory of its own: only where windows are can be seen."""
    fake = """
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <stdarg.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    #include "hpmmap_xpmem.h"
    int access(const char *name, int mode) {
        return strcmp(name, "/dev/xpmem") ? (int)syscall(SYS_access, name, mode) : 0;
    }
    int open(const char *name, int flags, ...) {
        return (int)syscall(SYS_open, strcmp(name, "/dev/xpmem") ? name : "/dev/null", flags, 0600);
    }
    int ioctl(int fd, unsigned long command, ...) {
        va_list rest;
        va_start(rest, command);
        void *arg = va_arg(rest, void *);
        va_end(rest);
        struct xpmem_cmd_attach *window = arg;
        if (command == XPMEM_CMD_MAKE)
            ((struct xpmem_cmd_make *)arg)->segid = 1;
        else if (command == XPMEM_CMD_GET)
            ((struct xpmem_cmd_get *)arg)->apid = 1;
        else if (command == XPMEM_CMD_ATTACH) {
            int flags = MAP_PRIVATE | MAP_ANONYMOUS | (window->vaddr ? MAP_FIXED_NOREPLACE : 0);
            void *at = mmap((void *)window->vaddr, window->size, PROT_READ | PROT_WRITE, flags, -1, 0);
            window->vaddr = (uintptr_t)at;
            return at == MAP_FAILED ? -1 : 0;
        }
        return 0 * fd;
    }
    """
    text = """
    #include <shmem.h>
    #include <stdio.h>
    #include <sys/mman.h>
    static long variable;
    int main(void) {
        /* Something is in the way. */
        mmap((void *)((1UL << 40) + (64UL << 20)), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        shmem_init();
        long *heap = shmem_malloc(sizeof(long));
        for (int pe = 0; pe < shmem_n_pes(); pe++)
            printf("%d %d %p %p\\n", shmem_my_pe(), pe, shmem_ptr(heap, pe), shmem_ptr(&variable, pe));
        shmem_finalize();
    }
    """
    source = tmp_path / "fake.c"
    source.write_text(fake)
    uapi = ROOT / "kernel/uapi"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I", uapi, source, "-o", tmp_path / "fake.so"]
    subprocess.run(command, check=True)
    status, out, err = outcome(3, compiled(tmp_path, text), LD_PRELOAD=tmp_path / "fake.so", SHMEM_DEBUG=1)
    assert status == [0] * 3, err
    assert err.count("by windows") == 3
    seen = {(int(me), int(pe)): [int(at, 16) for at in where] for me, pe, *where in map(str.split, out.splitlines())}
    assert len(seen) == 9
    for (me, pe), where in seen.items():
        for at, own in zip(where, seen[pe, pe], strict=True):
            assert me == pe or 1 << 40 <= at < 16 << 40, out
            assert at % (2 << 20) == own % (2 << 20), out
