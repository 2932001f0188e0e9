"""Installed files besides the programs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNITS = sorted(PACKAGING.glob("*.service"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_unit_may_do_little(unit):
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    level = re.search(r"exposure level for \S+: (\d+\.\d)", ran.stdout)
    if not level:
        pytest.skip(f"systemd-analyze cannot look at it: {ran.stderr.strip()}")
    assert float(level[1]) <= 3.0, ran.stdout


def test_the_packages_have_the_version_of_the_file():
    version = (ROOT / "VERSION").read_text().strip()
    newest = (PACKAGING / "debian/changelog").read_text().splitlines()[0]
    assert newest.startswith(f"hpmmap ({version}) ")


def test_the_plugin_alone_is_built_for_another_suite():
    stanzas = (PACKAGING / "debian/control").read_text().split("\n\n")
    profile = "Build-Profiles: <!pkg.hpmmap.slurm>"
    always = [stanza.splitlines()[0] for stanza in stanzas[1:] if profile not in stanza]
    assert always == ["Package: hpmmap-slurm"]


@pytest.mark.parametrize(
    ("release", "named"),
    [
        ("ID=debian\nVERSION_ID=12\n", "~deb12u0"),
        ('ID=debian\nVERSION_ID="13"\n', "~deb13u0"),
        ("ID=debian\n", ""),
        ("ID=ubuntu\nVERSION_ID=24.04\n", ""),
    ],
)
def test_the_version_of_the_plugin_names_the_suite(tmp_path, release, named):
    rules = (PACKAGING / "debian/rules").read_text()
    assert "dh_gencontrol --package=hpmmap-slurm -- -v$(DEB_VERSION)$(OF_SUITE) " in rules
    (tmp_path / "os-release").write_text(release)
    asked = re.search(r"^OF_SUITE := \$\(shell (.*)\)$", rules, re.MULTILINE)[1].replace("$$", "$")
    asked = asked.replace("/etc/os-release", str(tmp_path / "os-release"))
    ran = subprocess.run(["sh", "-c", asked], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == named
    # So the version of its package is unique.
    control = (PACKAGING / "debian/control").read_text().split("Package: hpmmap-slurm")[1].split("\n\n")[0]
    assert "hpmmap (= ${source:Version})" in control


def test_every_unit_is_packaged():
    rules = (PACKAGING / "debian/rules").read_text()
    for unit in UNITS:
        assert f"dh_installsystemd --name={unit.stem} " in rules


def maintain(tmp_path, script, *words):
    """Run a maintainer script on a system below tmp_path; its commands record their calls."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("getent", "groupdel", "deb-systemd-invoke", "hpmmap", "modprobe", "update-grub"):
        (commands / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/called"\n')
        (commands / name).chmod(0o755)
    (tmp_path / "called").touch()
    text = re.sub(
        r"(?<=[ ])/(?=(etc|run|var|dev)/\w)", f"{tmp_path}/", (PACKAGING / f"debian/hpmmap.{script}").read_text()
    )
    env = {"PATH": f"{commands}:/usr/bin:/bin"}
    subprocess.run(["sh", "-c", text, script, *words], env=env, check=True)
    return (tmp_path / "called").read_text().splitlines()


def test_a_purge_goes_on_where_a_directory_is_a_link(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/hpmmap.json").touch()
    (tmp_path / "etc/cdi").symlink_to(tmp_path / "elsewhere")
    assert "groupdel hpmmap" in maintain(tmp_path, "postrm", "purge")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_figures_are_not_written_again_after_removal(tmp_path):
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    figures = tmp_path / "var/lib/prometheus/node-exporter/hpmmap.prom"
    figures.parent.mkdir(parents=True)
    figures.touch()
    called = maintain(tmp_path, "prerm", "remove")
    assert called == ["deb-systemd-invoke stop hpmmap-prometheus.timer hpmmap-prometheus.service"]
    assert not figures.exists()


def test_partitions_go_before_the_command(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "run/hpmmap/partitions").mkdir(parents=True, exist_ok=True)
        (tmp_path / "run/hpmmap/partitions" / name).touch()
    called = maintain(tmp_path, "prerm", "remove")
    assert called == ["hpmmap partition delete a", "hpmmap partition delete b"]


def dkms(tmp_path, kernel, options, header="#define VMA_ITERATOR(name, __mm, __addr)"):
    """DKMS's result of dkms.conf for a kernel with these options: build or not, and the messages."""
    (tmp_path / "include/linux").mkdir(parents=True)
    (tmp_path / "include/linux/mm_types.h").write_text(header)
    (tmp_path / ".config").write_text("".join(f"{option}=y\n" for option in options))
    source = """. "$0"; [[ $kernelver =~ $BUILD_EXCLUSIVE_KERNEL ]] && echo "$AUTOINSTALL" """
    env = {"PATH": "/usr/bin:/bin", "kernelver": kernel, "kernel_source_dir": str(tmp_path)}
    command = ["bash", "-c", source, PACKAGING / "dkms.conf"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return ran.stdout.strip(), ran.stderr.strip()


NEEDED = re.search(r'BUILD_EXCLUSIVE_CONFIG="(.*)"', (PACKAGING / "dkms.conf").read_text())[1].split()


BUILDS = ["6.1.0-56-amd64", "6.12.117+deb12-rt-amd64", "6.6-mine", "7.3.4+deb13-amd64", "6.4.0-150600.21-default"]


@pytest.mark.parametrize("kernel", [*BUILDS, "5.14.0-503.el9.x86_64"])
def test_dkms_builds_for_kernels_that_are_known(tmp_path, kernel):
    assert dkms(tmp_path, kernel, NEEDED) == ("yes", "")


@pytest.mark.parametrize("kernel", ["4.18.0-553.el8.x86_64", "7.4.0", "7.30.1", "16.1.0"])
def test_dkms_leaves_out_others_with_a_line(tmp_path, kernel):
    assert dkms(tmp_path, kernel, NEEDED) == ("", f"hpmmap: kernel {kernel} is left out: it builds for 6.1 to 7.3")


def test_dkms_asks_the_headers_of_older_kernels(tmp_path):
    left_out = "hpmmap: kernel 5.14.0-362.el9.x86_64 is left out: it lacks VMA_ITERATOR, of Linux 6.1 and EL 9.5"
    assert dkms(tmp_path, "5.14.0-362.el9.x86_64", NEEDED, "struct mm_struct;") == ("", left_out)


@pytest.mark.parametrize("option", NEEDED)
def test_dkms_says_which_option_a_kernel_lacks(tmp_path, option):
    others = [one for one in NEEDED if one != option]
    assert dkms(tmp_path, "6.1.0", others) == ("", f"hpmmap: kernel 6.1.0 is left out: it lacks {option}")


def test_dkms_needs_what_the_module_says_that_it_needs():
    asked = set(re.findall(r"CONFIG_\w+", (ROOT / "kernel/compat/compat.h").read_text().split("/* Exported")[0]))
    assert set(NEEDED) | {"CONFIG_X86_64"} == asked


def test_the_newest_kernel_is_that_of_the_table():
    table = (ROOT / "docs/kernels.md").read_text().split("Where nothing is said")[0]
    newest = max(tuple(map(int, found)) for found in re.findall(r"^\| (\d+)\.(\d+)\.", table, re.MULTILINE))
    assert "builds for 6.1 to {}.{}".format(*newest) in (PACKAGING / "dkms.conf").read_text()
