//! Compiles the programs. `bpf/kernel.h` has the kernel's types that they need, so the build
//! machine need not run the kernel that they are loaded into.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    for file in ["kernel.h", "events.h", "noise.h"] {
        println!("cargo:rerun-if-changed=bpf/{file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    for name in ["trace", "noise"] {
        compile(name);
    }
}

fn compile(name: &str) {
    let source = format!("bpf/{name}.bpf.c");
    println!("cargo:rerun-if-changed={source}");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let status = Command::new(&clang)
        .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        // Debian's directory of asm/, which clang does not search for this target.
        .arg("-I/usr/include/x86_64-linux-gnu")
        .args(["-c", &source, "-o"])
        .arg(out.join(format!("{name}.bpf.o")))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {source}: {status}"),
        Err(error) => panic!("cannot run {clang} ({error}): scripts/setup tools installs it"),
    }
}
