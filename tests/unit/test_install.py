"""What make install writes, what make uninstall leaves, and what the RPM spec packages."""

import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()
SOURCES = [
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "VERSION",
    "docs",
    "kernel",
    "lib",
    "packaging",
    "scripts",
]
PROGRAMS = ["hpmmap", "hpmmap-bench", "hpmmap-trace"]
LIBRARIES = ["libhpmmap.so.0", "libhpmmap_jemalloc.so", "libhpmmap_shmem.so.0", "libxpmem.so.0"]
LIBRARIES += ["openmpi/libhpmmap_mpi.so"]
WORKERS = ["bench-alloc", "bench-noise", "bench-vm", "fragment", "populate.so", "apps/minicg"]
PAGES = ["hpmmap-bench-noise.1", "hpmmap-run.1", "hpmmap-vm-pin.1", "hpmmap-pools.5", "hpmmap-pool-iomem.8"]
KVER = "6.1.0-test"


@pytest.fixture
def tree(tmp_path):
    """The sources, and a build that has stubs for what is compiled."""
    root = tmp_path / "tree"
    root.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    build = root / "build"
    stubs = [*PROGRAMS, *(f"lib/{name}" for name in [*LIBRARIES, "mpich/libhpmmap_mpi.so"])]
    stubs += [*(f"bench/{name}" for name in WORKERS), "slurm/hpmmap.so", f"{KVER}/hpmmap.ko"]
    stubs += [f"completions/{name}" for name in ("hpmmap", "_hpmmap", "hpmmap.fish")]
    for name in stubs:
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        (build / name).write_text("stub\n")
        (build / name).chmod(0o755)
    (build / "man").mkdir()
    for name in PAGES:
        (build / "man" / name).write_text(".I /usr/lib/hpmmap/kdump\\-load\nhpmmap pool iomem\n")
    return root


def install(tree, dest, *words, check=True, **env):
    env = {"PATH": "/usr/sbin:/usr/bin:/bin", "DESTDIR": str(dest), **env}
    command = [tree / "scripts/install", *(words or [KVER])]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=check)


def uninstall(tree, dest, prefix):
    command = ["make", "--silent", "uninstall", f"PREFIX={prefix}", f"DESTDIR={dest}"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout


def installed(dest):
    return sorted(f"/{path.relative_to(dest)}" for path in dest.rglob("*") if not path.is_dir() or path.is_symlink())


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local", "/opt/hpmmap"])
def test_what_is_installed_names_its_own_paths(tree, tmp_path, prefix):
    dest = tmp_path / "dest"
    install(tree, dest, PREFIX=prefix)
    files = installed(dest)
    elsewhere = {f"/lib/modules/{KVER}/updates/hpmmap.ko"}
    assert all(path.startswith((f"{prefix}/", "/etc/")) or path in elsewhere for path in files)
    assert f"{prefix}/lib/hpmmap/kdump-load" in files

    for path in map(Path, files):
        here = dest / path.relative_to("/")
        assert here.exists(), f"{path}: a link to nothing"
        if "doc" in path.parts:
            continue
        text = here.read_text()
        assert not re.search(r"@\w+@", text), path
        if prefix != "/usr":
            assert not re.search(r"/usr/(lib|share)/hpmmap", text), path
        # What services, libraries and the plugin of Slurm name is there.
        named = re.findall(r"^(?:Exec\w+=|optional |prefix=|libdir=)(\S+)", text, re.MULTILINE)
        for one in named:
            assert (dest / one.lstrip("/")).exists(), f"{path}: {one}"
        if path.suffix in (".service", ".pc"):
            assert named, path

    system = Path("/etc" if prefix == "/opt/hpmmap" else f"{prefix}/lib")
    for name in (
        "systemd/system/hpmmap-pools.service",
        "systemd/system/hpmmap-partition.socket",
        "udev/rules.d/60-hpmmap.rules",
        "sysusers.d/hpmmap.conf",
    ):
        assert str(system / name) in files
    # As much as man and kdump-load of /usr have.
    assert f"{prefix}/bin/hpmmap" in (dest / prefix[1:] / "lib/hpmmap/kdump-load").read_text()
    assert "\nhpmmap pool iomem" in (dest / prefix[1:] / "share/man/man8/hpmmap-pool-iomem.8").read_text()


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local", "/opt/hpmmap"])
def test_uninstall_leaves_nothing(tree, tmp_path, prefix):
    dest = tmp_path / "dest"
    dest.mkdir()
    install(tree, dest, PREFIX=prefix)
    # An update: what it no longer has goes, and what both wrote is removed in the end.
    (tree / "build/man/hpmmap-run.1").unlink()
    install(tree, dest, PREFIX=prefix)
    assert not list(dest.rglob("hpmmap-run.1"))
    assert uninstall(tree, dest, prefix) == ""
    assert not list(dest.iterdir())


def test_kernels_have_a_module_each_until_dkms_has_it(tree, tmp_path):
    dest = tmp_path / "dest"
    shutil.copytree(tree / "build" / KVER, tree / "build/6.12.0-test")
    for version in (KVER, "6.12.0-test", KVER):
        install(tree, dest, version)
    assert len(list(dest.rglob("hpmmap.ko"))) == 2
    listed = (dest / "usr/lib/hpmmap/installed").read_text().splitlines()
    assert len(listed) == len(set(listed))
    install(tree, dest, "--no-module")
    assert not list(dest.rglob("hpmmap.ko"))
    uninstall(tree, dest, "/usr")
    assert not list(dest.iterdir())


def test_uninstall_keeps_what_others_own(tree, tmp_path):
    dest = tmp_path / "dest"
    mine = dest / "usr/lib/hpmmap/mine"
    mine.parent.mkdir(parents=True)
    mine.touch()
    (dest / "etc/hpmmap").mkdir(parents=True)
    (dest / "etc/hpmmap/limits").write_text("alice 1G\n")
    install(tree, dest)
    (dest / "etc/hpmmap/pools").write_text("0 64G\n")
    assert uninstall(tree, dest, "/usr") == "kept, because it was changed: /etc/hpmmap/pools\n"
    assert installed(dest) == ["/etc/hpmmap/limits", "/etc/hpmmap/pools", "/usr/lib/hpmmap/mine"]


def test_bad_input_is_named(tree, tmp_path):
    assert "'usr/local' is no absolute path" in install(tree, tmp_path / "x", check=False, PREFIX="usr/local").stderr
    assert "unknown option '--remove'" in install(tree, tmp_path / "x", "--remove", check=False).stderr
    missing = install(tree, tmp_path / "x", "--uninstall", check=False)
    assert missing.returncode == 1
    assert "/usr/lib/hpmmap/installed is missing: 'make install' with this PREFIX and DESTDIR" in missing.stderr


def spec_files():
    """Patterns of the spec's %files by package, with the paths that RPM's macros have on EL and SUSE."""
    paths = {"_bindir": "/usr/bin", "_libdir": "/usr/lib64", "_prefix": "/usr", "_datadir": "/usr/share"}
    paths |= {"_mandir": "/usr/share/man", "_includedir": "/usr/include", "_sysconfdir": "/etc", "_usrsrc": "/usr/src"}
    packages, patterns = {}, None
    for line in (ROOT / "packaging/rpm/hpmmap.spec").read_text().splitlines():
        if line.startswith("%files"):
            patterns = packages.setdefault(line.removeprefix("%files").strip(), [])
        elif patterns is not None and "/" in line:
            path = re.sub(r"%\{(\w+)\}", lambda found: paths.get(found[1], VERSION), line.split()[-1])
            if not line.startswith("%dir"):
                patterns.append(path)
    return packages


def test_the_spec_packages_what_is_installed(tree, tmp_path):
    dest = tmp_path / "dest"
    install(tree, dest, "--no-module", LIBDIR="/usr/lib64")
    packages = spec_files()
    patterns = [(package, one) for package, several in packages.items() for one in several if package != "dkms"]
    used = set()
    for path in installed(dest):
        hits = [(package, one) for package, one in patterns if fnmatch(path, one) or path.startswith(f"{one}/")]
        used.update(hits)
        if path == "/usr/lib/hpmmap/installed":
            continue
        assert len({package for package, _ in hits}) == 1, f"{path}: packaged by {hits}"
    # Pages that stand for all have one of each kind.
    unused = {one for one in set(patterns) - used if "/man/" not in one[1]}
    assert not unused
    assert packages["dkms"] == [f"/usr/src/hpmmap-{VERSION}"]
