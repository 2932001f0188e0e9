# SPDX-License-Identifier: GPL-2.0
"""The demonstration's readers of traces, smaps and results."""

from io import StringIO
from pathlib import Path

import pytest
from demo import checks, plan, report, results, smaps, tracefile
from rich.console import Console

TRACE = (Path(__file__).parent / "lammps_trace.txt").read_text()


def test_times_run_from_exec_and_marker_to_exit_of_the_first_thread():
    trace = tracefile.read(TRACE, "lmp")
    assert trace.total_seconds == pytest.approx(10.97)
    assert trace.run_seconds == pytest.approx(5.5)


def test_a_fault_lasts_until_its_last_handling_and_calls_do_not_extend_it():
    faults = {fault.address: fault for fault in tracefile.read(TRACE, "lmp").faults}
    assert set(faults) == {0x1000, 0x2000, 0x3000}
    assert faults[0x2000].seconds == pytest.approx(500e-6)
    assert faults[0x3000].seconds == pytest.approx(30e-6)


def test_only_faults_and_calls_after_the_marker_count():
    trace = tracefile.read(TRACE, "lmp")
    assert {fault.address for fault in trace.faults_after_start()} == {0x2000, 0x3000}
    assert [(call.name, round(call.seconds, 6)) for call in trace.calls_after_start()] == [("brk", 0.003)]


@pytest.mark.parametrize(
    "without, missing",
    [("sched_process_exec", "exec"), ("sys_openat", "end of start-up"), ("pid=317 prio", "exit")],
)
def test_an_incomplete_trace_is_an_error(without, missing):
    lines = [line for line in TRACE.splitlines() if without not in line]
    with pytest.raises(tracefile.TraceError, match=missing):
        tracefile.read("\n".join(lines), "lmp")


def vma(span: str, name: str, **kilobytes: int) -> str:
    lines = [f"{span} rw-p 00000000 00:00 0                  {name}".rstrip()]
    lines += [f"{key}:   {value:8} kB" for key, value in kilobytes.items()]
    return "\n".join([*lines, "VmFlags: rd wr mr mw me ac", ""])


SMAPS = (
    vma("1000-3000", "/usr/bin/lmp", Rss=8)
    + vma("3000-4000", "", Rss=4)
    + vma("400000-800000", "[heap]", Rss=2052, AnonHugePages=2048)
    + vma("800000-a00000", "/anon_hugepage (deleted)", Rss=0, Private_Hugetlb=2048)
    + vma("a00000-c00000", "/hpmmap (deleted)", Rss=2048, FilePmdMapped=2048)
    + vma("d00000-d02000", "/usr/lib/libc.so.6", Rss=8)
    + vma("d02000-d04000", "", Rss=8)
)


def test_smaps_are_summed_by_page_size():
    got = smaps.summary(SMAPS)
    assert got["memory_2m_bytes"] == 3 * 2048 * 1024
    assert got["hugetlb_bytes"] == 2048 * 1024
    # 4 KB of the heap and the 8 KB behind the library.
    assert got["memory_4k_bytes"] == (4 + 8) * 1024
    assert got["image_bytes"] == (8 + 4 + 8) * 1024


def test_static_data_of_the_program_belongs_to_its_image():
    assert smaps.summary(SMAPS)["image_ranges"] == [
        [0x1000, 0x3000],
        [0x3000, 0x4000],
        [0xD00000, 0xD02000],
    ]


THERMO = """\
Setting up Verlet run ...
Step Temp E_pair E_mol TotEng Press
       0         1.44   -6.7733681            0   -4.6134026   -5.0196887
       2    1.1252742   -6.2998991            0   -4.6120149    -2.559859
Loop time of 0.648221 on 1 procs for 2 steps with 62500 atoms
"""


def test_lammps_thermo_output_leaves_out_times():
    assert checks.lammps(THERMO) == [
        "Step Temp E_pair E_mol TotEng Press",
        "0 1.44 -6.7733681 0 -4.6134026 -5.0196887",
        "2 1.1252742 -6.2998991 0 -4.6120149 -2.559859",
    ]


def test_lammps_without_its_end_is_an_error():
    with pytest.raises(checks.ResultError):
        checks.lammps(THERMO.replace("Loop time", ""))


HPCC = """\
Found 0 errors in 524288 locations (passed).
    5 tests completed and passed residual checks.
    0 tests completed and failed residual checks.
Scaled residual: 0.0246368
Node(s) with error 0
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0056132 ...... PASSED
Success=1
PTRANS_residual=0
MPIRandomAccess_LCG_Errors=0
MPIRandomAccess_Errors=0
MPIFFT_maxErr=1.29948e-15
HPL_N=700
HPL_RnormI=7.1978e-12
HPL_XnormI=67.9795
"""


def test_hpcc_passes():
    assert "Success=1" in checks.hpcc(HPCC)


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("PASSED", "FAILED"),
        ("Success=1", "Success=0"),
        ("Found 0 errors", "Found 3 errors"),
        ("Node(s) with error 0", "Node(s) with error 1"),
        ("0 tests completed and failed", "2 tests completed and failed"),
        ("Scaled residual: 0.02", "Scaled residual: 99.02"),
        ("MPIFFT_maxErr=1.29948e-15\n", ""),
    ],
)
def test_hpcc_does_not_pass(right, wrong):
    assert right in HPCC
    with pytest.raises(checks.ResultError):
        checks.hpcc(HPCC.replace(right, wrong))


def test_a_difference_names_both_values():
    assert checks.difference(["a", "b"], ["a", "b"]) is None
    assert checks.difference(["a", "b"], ["a", "c"]) == "'c' instead of 'b'"
    assert checks.difference(["a", "b"], ["a"]) == "1 lines instead of 2"


def run_files(directory, thermo):
    directory.mkdir()
    (directory / "trace.txt").write_text(TRACE)
    (directory / "started.log").write_text(thermo)
    (directory / "samples.json").write_text(
        '[{"memory_2m_bytes": 0, "memory_4k_bytes": 8192, "hugetlb_bytes": 0,'
        ' "image_bytes": 0, "image_ranges": [[12288, 16384]], "hpmmap": null}]'
    )


def test_faults_in_images_are_counted_apart(tmp_path):
    run = plan.Run("4k", "lammps", "alone", True, 0)
    run_files(tmp_path / run.id, THERMO)
    facts = {run.id: {"lost_events": 0, "vmstat": {}, "host_wait_part": 0.0}}
    (cell,) = results.collect([run], tmp_path, {}, facts, {})["summary"]
    assert (cell["memory_faults"], cell["image_faults"]) == (1, 1)
    assert cell["run_seconds"] is None
    assert cell["errors"] == []


def test_a_run_with_another_result_has_failed(tmp_path):
    right = plan.Run("4k", "lammps", "alone", True, 0)
    wrong = plan.Run("thp", "lammps", "alone", True, 0)
    run_files(tmp_path / right.id, THERMO)
    run_files(tmp_path / wrong.id, THERMO.replace("1.1252742", "1.1252743"))
    facts = {run.id: {"lost_events": 0, "vmstat": {}, "host_wait_part": 0.0} for run in (right, wrong)}
    first, second = results.collect([right, wrong], tmp_path, {}, facts, {})["summary"]
    assert not first["errors"]
    assert "1.1252743" in second["errors"][0]
    assert second["memory_faults"] is None


@pytest.mark.parametrize("manager, reason", [("hpmmap", "registered"), ("hugetlb", "hugetlbfs")])
def test_a_run_that_bypassed_its_manager_has_failed(tmp_path, manager, reason):
    run = plan.Run(manager, "lammps", "alone", True, 0)
    run_files(tmp_path / run.id, THERMO)
    facts = {run.id: {"lost_events": 0, "vmstat": {}, "host_wait_part": 0.0}}
    (cell,) = results.collect([run], tmp_path, {}, facts, {})["summary"]
    assert reason in cell["errors"][0]


def test_lost_events_spoil_a_run(tmp_path):
    run = plan.Run("4k", "lammps", "alone", True, 0)
    run_files(tmp_path / run.id, THERMO)
    facts = {run.id: {"lost_events": 2, "vmstat": {}, "host_wait_part": 0.0}}
    (cell,) = results.collect([run], tmp_path, {}, facts, {})["summary"]
    assert "2 events" in cell["errors"][0]


def test_each_round_holds_every_combination():
    runs = plan.runs([m.key for m in plan.MANAGERS], [a.key for a in plan.APPS], 2)
    assert len(runs) == len({run.id for run in runs}) == 4 * 2 * 2 * 3
    assert [run.traced for run in runs] == [True] * 16 + [False] * 32


def test_a_failed_run_shows_as_missing_with_its_reason(tmp_path):
    failed = plan.Run("4k", "lammps", "alone", True, 0)
    right = plan.Run("thp", "lammps", "alone", True, 0)
    run_files(tmp_path / right.id, THERMO)
    facts = {right.id: {"lost_events": 0, "vmstat": {}, "host_wait_part": 0.5}}
    record = results.collect(
        [failed, right], tmp_path, {"kernel": "6.12"}, facts, {failed.id: "mpirun: exit status 7"}
    )
    console = Console(file=StringIO(), width=200)
    report.table(console, record)
    report.picture(tmp_path / "demo.png", record)
    shown = console.file.getvalue()
    assert f"n/a: {failed.id}: mpirun: exit status 7" in shown
    assert "the same under all managers" not in shown
    assert "waited for a CPU" in shown
    assert (tmp_path / "demo.png").stat().st_size > 0
