//! Compares `uapi` with `kernel/uapi/hpmmap.h` as the C compiler sees it.

use std::collections::BTreeMap;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use hpmmap_sys::uapi::*;

/// One table for both languages: the C expression and what Rust has for it.
macro_rules! contract {
    (
        constants { $($c_const:literal => $rust:expr,)* }
        structs { $($c_struct:literal => $ty:ty { $($field:ident),* },)* }
    ) => {
        fn expected() -> BTreeMap<String, u64> {
            let mut all = BTreeMap::new();
            $( all.insert($c_const.to_string(), u64::from($rust)); )*
            $(
                all.insert(
                    format!("sizeof(struct {})", $c_struct),
                    size_of::<$ty>() as u64,
                );
                $(
                    all.insert(
                        format!("offsetof(struct {}, {})", $c_struct, stringify!($field)),
                        offset_of!($ty, $field) as u64,
                    );
                )*
            )*
            all
        }
    };
}

contract! {
    constants {
        "HPMMAP_ABI_VERSION" => ABI_VERSION,
        "HPMMAP_BLOCK_BYTES" => BLOCK_BYTES,
        "HPMMAP_LARGE_BYTES" => LARGE_BYTES,
        "HPMMAP_POOL_RANGE_MIN_SIZE" => POOL_RANGE_MIN_SIZE,
        "HPMMAP_FEATURE_JOBS" => FEATURE_JOBS,
        "HPMMAP_FEATURE_LIMITS" => FEATURE_LIMITS,
        "HPMMAP_POOL_F_MOVABLE" => POOL_F_MOVABLE,
        "HPMMAP_LAUNCH_F_STRICT" => LAUNCH_F_STRICT,
        "HPMMAP_LAUNCH_F_NO_INHERIT" => LAUNCH_F_NO_INHERIT,
        "HPMMAP_LAUNCH_F_INTERLEAVE" => LAUNCH_F_INTERLEAVE,
        "HPMMAP_LAUNCH_F_IMAGE" => LAUNCH_F_IMAGE,
        "HPMMAP_MARK_MAGIC" => MARK_MAGIC,
        "HPMMAP_MARK_MAGIC_MASK" => MARK_MAGIC_MASK,
        "HPMMAP_MARK_F_1G" => MARK_F_1G,
        "HPMMAP_MARK_LAUNCH_FLAGS" => MARK_LAUNCH_FLAGS,
        "HPMMAP_MARK_OPTIONS" => MARK_OPTIONS,
        "HPMMAP_LAUNCH_F_FIRST_TOUCH" => LAUNCH_F_FIRST_TOUCH,
        "HPMMAP_LIMIT_F_DEFAULT" => LIMIT_F_DEFAULT,
        "HPMMAP_LIMIT_F_CGROUP" => LIMIT_F_CGROUP,
        "HPMMAP_LIMIT_F_PERCENT" => LIMIT_F_PERCENT,
        "HPMMAP_LIMIT_NONE" => LIMIT_NONE,
        "HPMMAP_LIMIT_INHERIT" => LIMIT_INHERIT,
        "HPMMAP_IOC_INFO" => IOC_INFO,
        "HPMMAP_IOC_POOL_ADD" => IOC_POOL_ADD,
        "HPMMAP_IOC_POOL_REMOVE" => IOC_POOL_REMOVE,
        "HPMMAP_IOC_POOL_LIST" => IOC_POOL_LIST,
        "HPMMAP_IOC_LAUNCH" => IOC_LAUNCH,
        "HPMMAP_IOC_LIMIT_SET" => IOC_LIMIT_SET,
        "HPMMAP_IOC_LIMIT_LIST" => IOC_LIMIT_LIST,
    }
    structs {
        "hpmmap_info" => Info {
            size, flags, abi_version, __reserved, memory_block_bytes, features
        },
        "hpmmap_pool_add" => PoolAdd { size, flags, start, length, node, __reserved },
        "hpmmap_pool_remove" => PoolRemove {
            size, flags, start, length, busy_bytes, pinned_bytes, bad_bytes
        },
        "hpmmap_pool_range" => PoolRange {
            start, length, free_bytes, pinned_bytes, node, flags, bad_bytes
        },
        "hpmmap_pool_list" => PoolList { size, flags, ranges, nr, range_size },
        "hpmmap_launch" => Launch {
            size, flags, page_size, nodemask, nodemask_bits, __reserved, job_id
        },
        "hpmmap_limit_set" => LimitSet { size, flags, uid, cgroup_fd, bytes },
        "hpmmap_limit_entry" => LimitEntry {
            flags, uid, cgroup_id, rule, limit_bytes, held_bytes
        },
        "hpmmap_limit_list" => LimitList { size, flags, entries, nr, __reserved },
    }
}

#[test]
fn rust_and_the_header_agree() {
    let expected = expected();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/uapi/hpmmap.h");
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("contract.c");
    let program = dir.path().join("contract");
    let mut c = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"{}\"\nint main(void)\n{{\n",
        header.canonicalize().expect("the header exists").display()
    );
    for name in expected.keys() {
        c += &format!("printf(\"%s=%llu\\n\", \"{name}\", (unsigned long long)({name}));\n");
    }
    c += "printf(\"%s=%s\\n\", \"path\", HPMMAP_DEVICE_PATH);\nreturn 0;\n}\n";
    fs::write(&source, c).unwrap();

    let compiled = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .status()
        .expect("cc can be run");
    assert!(compiled.success(), "the header does not compile");
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut seen = BTreeMap::new();
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap();
        if name == "path" {
            assert_eq!(value, DEVICE_PATH);
        } else {
            seen.insert(name.to_string(), value.parse::<u64>().unwrap());
        }
    }
    assert_eq!(seen, expected);
}

#[test]
fn no_ioctl_of_the_header_is_missing_here() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/uapi/hpmmap.h");
    let text = fs::read_to_string(header).unwrap();
    let expected = expected();
    let defined: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
        .filter_map(|rest| rest.split_whitespace().next())
        .filter(|name| name.starts_with("HPMMAP_IOC_") && *name != "HPMMAP_IOC_MAGIC")
        .collect();
    assert!(!defined.is_empty());
    for name in defined {
        assert!(
            expected.contains_key(name),
            "{name} has no Rust counterpart"
        );
    }
}
