"""Clusters of nodes, without a guest: scripts, disks and networks."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpmmap_guest import GuestError, cluster
from hpmmap_guest.cluster import Cluster, boot_of, network
from hpmmap_guest.node import SKELETON, Image, image, image_key, packages_of, remove_unless_held
from hpmmap_guest.roots import remove

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/nodes"))

from node_scripts import Script, all_scripts, chains, chosen, parse, text_of  # noqa: E402

FIRST = Script("first")
SECOND = Script("second", after="first")
THIRD = Script("third", after="second")
PAIR = Script("pair", nodes=2, suites=("bookworm",))
SCRIPTS = [FIRST, PAIR, SECOND, THIRD]


def test_a_head_says_what_a_script_needs():
    text = "# What it is.\n# nodes: 2\n# suites: bookworm\n# after: first\n# timeout: 9\n# memory: 2G\n"
    text += "# files: a b\n\n# nodes: 3\n"
    assert parse("it", text) == Script("it", 2, ("bookworm",), "first", 9, "2G", files=("a", "b"))
    assert parse("it", "# reboots: yes\n# cpus: 4\n") == Script("it", reboots=True, cpus=4)
    assert parse("it", "# icount: yes\n# cpus: 1\n") == Script("it", icount=True, cpus=1)
    assert parse("it", "true\n# nodes: 2\n") == Script("it")


def test_a_suite_that_is_none_is_told():
    with pytest.raises(ValueError, match="it: there is no suite buster"):
        parse("it", "# suites: buster bookworm\n")


def test_a_chain_is_in_its_order():
    assert chains([THIRD, SECOND, PAIR, FIRST]) == [[PAIR], [FIRST, SECOND, THIRD]]


def test_two_cannot_find_the_same_disks():
    with pytest.raises(ValueError, match="both second and other come after first"):
        chains([FIRST, SECOND, Script("other", after="first")])


def test_all_run_where_they_can():
    assert chosen([], SCRIPTS) == [
        ("bookworm", [FIRST, SECOND, THIRD]),
        ("bookworm", [PAIR]),
        ("trixie", [FIRST, SECOND, THIRD]),
    ]


def test_what_comes_before_one_runs_too():
    assert chosen(["trixie:second"], SCRIPTS) == [("trixie", [FIRST, SECOND])]
    assert chosen(["bookworm:pair", "bookworm:first"], SCRIPTS) == [("bookworm", [FIRST]), ("bookworm", [PAIR])]


@pytest.mark.parametrize("word", ["buster", "bookworm:none"])
def test_a_word_that_names_nothing_is_refused(word):
    with pytest.raises(ValueError, match=f"'{word}': it must be a suite"):
        chosen([word], SCRIPTS)


def test_every_script_can_be_read_and_reached():
    scripts = all_scripts()
    reached = {script.name for chain in chains(scripts) for script in chain}
    assert reached == {script.name for script in scripts}
    for script in scripts:
        assert text_of(script).startswith(text_of(scripts[0])[:100])
        subprocess.run(["bash", "-n"], input=text_of(script), text=True, check=True)


def test_disks_change_with_packages(tmp_path):
    archive, deb = tmp_path / "bookworm-1.tar", tmp_path / "it.deb"
    deb.write_bytes(b"one")
    before = image_key(archive, [deb])
    assert image_key(archive, [deb]) == before
    deb.write_bytes(b"two")
    assert image_key(archive, [deb]) != before
    assert image_key(tmp_path / "bookworm-2.tar", [deb]) != image_key(archive, [deb])


def test_each_suite_has_the_plugin_that_was_built_on_it(tmp_path):
    for name in ("deb/hpmmap_1_amd64.deb", "deb/hpmmap-slurm_1_amd64.deb", "deb-trixie/hpmmap-slurm_1_amd64.deb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def found(suite, here):
        return [str(deb.relative_to(tmp_path)) for deb in packages_of(suite, tmp_path, here)]

    assert found("bookworm", "bookworm") == ["deb/hpmmap-slurm_1_amd64.deb", "deb/hpmmap_1_amd64.deb"]
    assert found("trixie", "bookworm") == ["deb/hpmmap_1_amd64.deb", "deb-trixie/hpmmap-slurm_1_amd64.deb"]
    assert found("bookworm", "trixie") == ["deb/hpmmap_1_amd64.deb"]


def test_without_packages_there_is_no_disk(tmp_path):
    with pytest.raises(GuestError, match="make deb"):
        packages_of("bookworm", tmp_path, "bookworm")


def test_a_suite_that_is_none_has_no_disk():
    with pytest.raises(GuestError, match="suite 'buster'"):
        image("buster")


def test_the_first_node_has_a_link_to_each_other():
    def backends(options):
        return [option for option in options if option.startswith("socket,")]

    assert backends(network(1, [])) == []
    assert backends(network(1, [7, 8])) == ["socket,id=link7,fd=7", "socket,id=link8,fd=8"]
    assert backends(network(2, [9])) == ["socket,id=link9,fd=9"]
    addresses = {network(number, [])[1] for number in (1, 2, 3)}
    assert len(addresses) == 3
    for number in (1, 2, 3, 4):
        mac = network(number, [])[1].rpartition("=")[2]
        assert f"MACAddress={mac}\n" in (SKELETON / f"etc/systemd/network/n{number}.network").read_text()
        assert f"10.0.0.{number} n{number}\n" in (SKELETON / "etc/hosts").read_text()


@pytest.mark.parametrize(
    ("output", "late", "reason"),
    [
        ("a\nHPMMAP-NODE-EXIT:0\n[1] fine\nHPMMAP-NODE-END\n", None, ""),
        ("a\nHPMMAP-NODE-EXIT:3\n[1] fine\n", None, "the script ended with status 3"),
        ("a\nHPMMAP-NODE-EXIT:0\n[1] BUG: it\n", None, "the kernel complained: [1] BUG: it"),
        ("a\nHPMMAP-NODE-EXIT:0\n", 5, "it did not end within 5 s"),
        ("a\n", None, "it ended without a word: last"),
        (None, 5, "it did not end within 5 s"),
    ],
)
def test_what_became_of_a_node(tmp_path, output, late, reason):
    path = tmp_path / "output"
    if output is not None:
        path.write_text(output)
    boot = boot_of(path, "first\nlast\n\n", late)
    assert boot.reason == reason
    assert boot.ok == (not reason)
    assert boot.output == ("" if output is None else "a")


def test_a_panic_is_told_where_a_node_never_ended(tmp_path):
    boot = boot_of(tmp_path / "output", "[1] Kernel panic - not syncing: it\nlast\n", 5)
    assert boot.reason == "the kernel complained: [1] Kernel panic - not syncing: it"


def test_of_a_node_that_was_rebooted_all_boots_count(tmp_path):
    path = tmp_path / "output"
    path.write_text("a\nHPMMAP-NODE-EXIT:0\n[1] fine\nHPMMAP-NODE-END\n")
    console = "[9] BUG: it\n[0] booted again\n"
    assert boot_of(path, console, None).ok
    assert boot_of(path, console, None, rebooted=True).reason == "the kernel complained: [9] BUG: it"


@pytest.mark.parametrize("script", ["echo one; exit 3", "printf 'no end of line'; exit 3", "head -c 3; exit 3"])
def test_a_script_runs_on_another_node(tmp_path, script):
    """Both ends of the tool, with a port of this machine."""
    here, there = SKELETON / "usr/local/sbin/on", SKELETON / "usr/local/sbin/on-this-node"
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = tmp_path / "on"
        client.write_text(here.read_text().replace("/77", f"/{server.getsockname()[1]}"))
        ran = subprocess.Popen(["bash", client, "127.0.0.1", script], stdout=subprocess.PIPE, text=True)
        link, _ = server.accept()
        with link:
            subprocess.run(["bash", there], stdin=link, stdout=link, check=True)
        said = ran.communicate(timeout=20)[0]
    assert ran.returncode == 3
    assert said == {"e": "one\n", "p": "no end of line\n", "h": ""}[script[0]]


def test_what_stands_in_the_skeleton_can_be_read_by_all():
    for path in SKELETON.rglob("*"):
        assert os.stat(path).st_mode & 0o044 == 0o044, path


def test_a_tree_with_something_mounted_in_it_stays(tmp_path):
    tree, mounts = tmp_path / "a tree", tmp_path / "mounts"
    (tree / "dev").mkdir(parents=True)
    (tree / "dev/null").touch()
    name = str(tree).replace(" ", r"\040")
    mounts.write_text(f"proc /proc proc rw 0 0\nudev {name}/dev devtmpfs rw 0 0\n")
    with pytest.raises(GuestError, match="a tree/dev is mounted"):
        remove(tree, mounts)
    assert (tree / "dev/null").exists()
    mounts.write_text(f"proc /proc proc rw 0 0\nudev {name}-2/dev devtmpfs rw 0 0\n")
    remove(tree, mounts)
    assert not tree.exists()
    remove(tree, mounts)


def test_an_image_that_nodes_run_with_stays(tmp_path):
    held = Image("bookworm", tmp_path / "image")
    held.dir.mkdir()
    held.hold()
    remove_unless_held(held.dir)
    assert held.dir.exists()
    directory = held.dir
    del held
    remove_unless_held(directory)
    assert not directory.exists()


def without_disks(tmp_path, monkeypatch, version=(7, 2), accel="tcg"):
    for name, value in (
        ("NODES", tmp_path),
        ("run_logged", lambda *_: None),
        ("kernels", lambda: ["6.1"]),
        ("choose_accel", lambda _: accel),
        ("qemu_version", lambda: version),
    ):
        monkeypatch.setattr(cluster, name, value)


def test_a_node_that_counts_instructions_is_emulated_and_has_one_cpu(tmp_path, monkeypatch):
    without_disks(tmp_path, monkeypatch, accel="kvm")
    node = Cluster(Image("bookworm", tmp_path), "it", cpus=1, icount=True)
    command = node._command(1, tmp_path / "it", "")
    assert command[command.index("-icount") + 1] == "shift=0,sleep=off"
    assert not {"-accel", "-enable-kvm"} & set(command)
    assert "nowatchdog" in command[command.index("-append") + 1].split()
    with pytest.raises(GuestError, match="one CPU, not 2"):
        Cluster(Image("bookworm", tmp_path), "it", icount=True)


@pytest.mark.parametrize(
    ("version", "cpu"),
    [((7, 2), "max,erms=off,fsrm=off"), ((8, 1), "max,erms=off,fsrm=off,fzrm=off,fsrs=off,fsrc=off")],
)
def test_an_emulated_node_has_all_fast_strings_or_none(tmp_path, monkeypatch, version, cpu):
    without_disks(tmp_path, monkeypatch, version)
    command = Cluster(Image("bookworm", tmp_path), "it")._command(1, tmp_path / "it", "")
    assert command[command.index("-cpu") + 1] == cpu


@pytest.mark.parametrize(
    ("squeue", "status"),
    [("return 0", 0), ("echo 7 it", 1), ("echo 'Unable to contact slurm controller' >&2; return 1", 1)],
)
def test_a_slurmctld_that_is_dead_has_no_empty_queue(squeue, status):
    script = f". {ROOT}/tests/nodes/lib.sh\nsqueue() {{ {squeue}; }}\nno_queue"
    assert subprocess.run(["bash", "-c", script], check=False).returncode == status


def test_a_pool_that_is_not_there_is_not_free(tmp_path):
    script = f". {ROOT}/tests/nodes/lib.sh\nPOOL={tmp_path}/total_bytes\npool_is_free"
    assert subprocess.run(["bash", "-c", script], check=False).returncode == 1
    for name in ("total_bytes", "free_bytes"):
        (tmp_path / name).write_text("4096\n")
    assert subprocess.run(["bash", "-c", script], check=False).returncode == 0
