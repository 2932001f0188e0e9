//! Compiles the programs. `bpf/kernel.h` has the kernel's types that they need, so the build
//! machine need not run the kernel that they are loaded into.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    for file in ["trace.bpf.c", "kernel.h", "events.h"] {
        println!("cargo:rerun-if-changed=bpf/{file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("trace.bpf.o");
    let status = Command::new(&clang)
        .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        // Debian's directory of asm/, which clang does not search for this target.
        .arg("-I/usr/include/x86_64-linux-gnu")
        .args(["-c", "bpf/trace.bpf.c", "-o"])
        .arg(&out)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile bpf/trace.bpf.c: {status}"),
        Err(error) => panic!("cannot run {clang} ({error}): scripts/setup tools installs it"),
    }
}
