"""Facts that the scripts find out about a machine."""

import subprocess
from pathlib import Path

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
