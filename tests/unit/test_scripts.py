"""Facts that the scripts find out about a machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def shell(commands):
    """Run @commands after common.sh, with the options that the scripts set."""
    script = f"set -euo pipefail; . {SCRIPTS}/common.sh; {commands}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


def test_no_kernel_of_a_series_is_no_failure():
    # Otherwise the set-up of a machine without kernels would end silently.
    ran = shell('version=$(kernels_installed 0.0 | head -n 1); echo "<$version>"')
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "<>\n", "")


def test_an_unknown_package_is_not_installed():
    assert shell("installed no-such-package-0 || echo no").stdout == "no\n"


def make_crate(root, name, files, dependencies=()):
    for path, text in files.items():
        path = root / "crates" / name / "src" / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    lines = ["[package]", f'name = "{name}"', "[dependencies]", *(f"{one}.workspace = true" for one in dependencies)]
    (root / "crates" / name / "Cargo.toml").write_text("\n".join(lines))


def lint_crates(root):
    ran = subprocess.run([SCRIPTS / "lint-crates", root], capture_output=True, text=True, check=False)
    return ran.returncode, [line.removeprefix(f"lint: {root}/crates/") for line in ran.stderr.splitlines()]


def test_crates_use_only_what_is_below_them(tmp_path):
    args = "use crate::cli::Args;\n"
    make_crate(
        tmp_path, "hpmmap-low", {"lib.rs": "", "size.rs": "// crate::cli is a word here\nuse crate::{a, b::cli};\n"}
    )
    make_crate(
        tmp_path, "hpmmap-verb", {"lib.rs": "mod cli;", "cli.rs": "", "verbs/one.rs": args}, ["hpmmap-low", "clap"]
    )
    make_crate(tmp_path, "hpmmap-program", {"lib.rs": ""}, ["clap"])
    make_crate(tmp_path, "hpmmap-man", {"main.rs": "use hpmmap_verb::cli::Cli;\n"}, ["hpmmap-verb", "clap"])
    assert lint_crates(tmp_path) == (0, [])

    make_crate(tmp_path, "hpmmap-low", {"lib.rs": ""}, ["clap", "hpmmap-verb"])
    make_crate(
        tmp_path,
        "hpmmap-other",
        {"cli.rs": "", "deep/a.rs": f"\n{args}", "b.rs": "use crate::{\n    a::{b},\n    verbs,\n};"},
    )
    make_crate(
        tmp_path, "hpmmap-verb", {"plan.rs": "fn a() { hpmmap_other::cli::b() }"}, ["hpmmap-other", "hpmmap-man"]
    )
    status, found = lint_crates(tmp_path)
    assert status == 1
    assert [line.split(": ")[0] for line in found] == [
        "hpmmap-low/Cargo.toml",
        "hpmmap-low/Cargo.toml",
        "hpmmap-other/src/b.rs:1",
        "hpmmap-other/src/deep/a.rs:2",
        "hpmmap-verb/src/plan.rs:1",
        "hpmmap-verb/Cargo.toml",
        "hpmmap-verb/Cargo.toml",
    ]


def machine(tmp_path, release, missing=()):
    """A machine of this os-release with fake package managers, that lacks what @missing lists."""
    (tmp_path / "os-release").write_text(release)
    commands = tmp_path / "commands"
    commands.mkdir()
    fakes = {
        "rpm": f'grep -qxF -- "$3" {tmp_path}/missing && exit 1; exit 0',
        "dpkg-query": "exit 1",
        **{name: f'echo "{name} $*" >>{tmp_path}/called' for name in ("dnf", "zypper", "apt-get", "apt-cache")},
        "sudo": 'exec "$@"',
        **{name: f"echo {name} 1.99.0" for name in ("cargo", "rustc")},
    }
    for name, body in fakes.items():
        (commands / name).write_text(f"#!/bin/sh\n{body}\n")
        (commands / name).chmod(0o755)
    (tmp_path / "missing").write_text("".join(f"{one}\n" for one in missing))
    (tmp_path / "called").touch()
    # Its build/ is not that of this tree.
    shutil.copytree(SCRIPTS, tmp_path / "scripts")


def setup(tmp_path, *words):
    env = {"PATH": f"{tmp_path}/commands:/usr/bin:/bin", "HPMMAP_OS_RELEASE": str(tmp_path / "os-release")}
    command = [tmp_path / "scripts/setup", *words]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr.strip(), (tmp_path / "called").read_text().splitlines()


EL = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n'
FEDORA = "ID=fedora\nVERSION_ID=43\n"
SLES = 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n'
LEAP = 'ID="opensuse-leap"\nID_LIKE="suse opensuse"\n'
ZYPPER = "zypper --non-interactive install --no-recommends --capability"


@pytest.mark.parametrize(
    ("release", "part", "missing", "called"),
    [
        (EL, "tools", ["clang", "elfutils-libelf-devel"], "dnf --assumeyes install clang elfutils-libelf-devel"),
        (FEDORA, "bench", ["gcc", "make", "glibc-devel"], "dnf --assumeyes install gcc make glibc-devel"),
        (EL, "rpm", ["rpm-build", "slurm-devel"], "dnf --assumeyes install rpm-build slurm-devel"),
        (SLES, "tools", ["libelf-devel", "pkg-config"], f"{ZYPPER} libelf-devel pkg-config"),
        (LEAP, "rpm", ["openmpi4-devel"], f"{ZYPPER} openmpi4-devel"),
        (SLES, "tools", [], None),
    ],
)
def test_what_is_missing_is_installed_by_the_names_of_the_distribution(tmp_path, release, part, missing, called):
    machine(tmp_path, release, missing)
    assert setup(tmp_path, part) == (0, "", [called] if called else [])


@pytest.mark.parametrize(
    ("release", "version", "called"),
    [
        (EL, "5.14.0-503.11.1.el9_5.x86_64", "dnf --assumeyes install kernel-devel-uname-r = {}"),
        (SLES, "6.4.0-150600.21-default", f"{ZYPPER} kernel-default-devel = 6.4.0-150600.21"),
    ],
)
def test_the_headers_of_a_kernel_are_those_of_its_version(tmp_path, release, version, called):
    machine(
        tmp_path, release, [called.format(version).split(" install ")[1].replace("--no-recommends --capability ", "")]
    )
    status, said, calls = setup(tmp_path, "module", version)
    assert calls == [called.format(version)]
    # The fake installs nothing.
    assert (status, said) == (1, f"setup: no build tree for kernel {version}: /lib/modules/{version}/build is missing")


def test_what_a_part_needs_is_listed_where_nothing_can_install_it(tmp_path):
    machine(tmp_path, "ID=arch\n")
    status, said, called = setup(tmp_path, "tools")
    assert (status, called) == (1, [])
    assert said.startswith(f"setup: {tmp_path}/os-release names no distribution with apt, dnf or zypper. Needed is ")
    assert "libbpf-dev" in said
    assert said.endswith("repeat the command with HPMMAP_SETUP=no")


def test_guests_are_for_debian(tmp_path):
    machine(tmp_path, EL)
    status, said, called = setup(tmp_path, "deb")
    assert (status, called) == (1, [])
    assert said.startswith(
        "setup: only Debian's names are known for debhelper dh-dkms dpkg-dev lintian fakeroot: with dnf use"
    )


def test_a_repository_that_is_not_enabled_is_named(tmp_path):
    machine(tmp_path, EL, ["jemalloc-devel"])
    (tmp_path / "commands/dnf").write_text("#!/bin/sh\necho 'No match for argument: jemalloc-devel'\nexit 1\n")
    status, said, _ = setup(tmp_path, "tools")
    assert status == 1
    assert (
        "No match for argument: jemalloc-devel\nsetup: dnf could not install jemalloc-devel; its output is in " in said
    )
    assert "EL: CRB and EPEL" in said
