//! `src/uapi/generated.rs` is the output of bindgen for `kernel/uapi/hpmmap.h`. It is kept in the
//! tree, so that building the command does not need bindgen.

use std::env;
use std::fs;

use bindgen::callbacks::{IntKind, ItemInfo, ParseCallbacks};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernel/uapi/hpmmap.h");
const GENERATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/uapi/generated.rs");
/// If it is set, the file is written instead of compared.
const UPDATE: &str = "HPMMAP_UPDATE_BINDINGS";

/// Macros of 64 bits, by prefixes of their names.
const WIDE: [&str; 3] = ["HPMMAP_FEATURE_", "HPMMAP_IOC_", "HPMMAP_LIMIT_"];
const NARROW: [&str; 2] = ["HPMMAP_IOC_MAGIC", "HPMMAP_LIMIT_F_"];

#[derive(Debug)]
struct Names;

impl ParseCallbacks for Names {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        let begins = |with: &[&str]| with.iter().any(|one| name.starts_with(one));
        let wide = name.ends_with("_BYTES") || begins(&WIDE) && !begins(&NARROW);
        Some(if wide { IntKind::U64 } else { IntKind::U32 })
    }

    /// `HPMMAP_POOL_F_MOVABLE`: `POOL_F_MOVABLE`; `struct hpmmap_pool_add`: `PoolAdd`.
    fn item_name(&self, item: ItemInfo) -> Option<String> {
        if let Some(constant) = item.name.strip_prefix("HPMMAP_") {
            return Some(constant.to_string());
        }
        let words = item.name.strip_prefix("hpmmap_")?.split('_');
        let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
        Some(words.map(capital).collect())
    }
}

fn generated() -> String {
    bindgen::builder()
        .header(HEADER)
        .allowlist_file(".*/uapi/hpmmap[.]h")
        .parse_callbacks(Box::new(Names))
        // The numbers of ioctls are casts and sizes, which only a compiler can evaluate.
        .clang_macro_fallback()
        .clang_macro_fallback_build_dir(env!("CARGO_TARGET_TMPDIR"))
        .derive_default(true)
        .derive_eq(true)
        .generate_comments(false)
        .generate_cstr(true)
        .formatter(bindgen::Formatter::Prettyplease)
        .disable_header_comment()
        .raw_line("//! Made by bindgen from `kernel/uapi/hpmmap.h`: `tests/header.rs`.")
        .generate()
        .expect("bindgen reads the header")
        .to_string()
}

#[test]
fn the_bindings_are_those_of_the_header() {
    let generated = generated();
    if env::var_os(UPDATE).is_some() {
        fs::write(GENERATED, generated).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(GENERATED).unwrap() == generated,
        "src/uapi/generated.rs is not what bindgen makes of kernel/uapi/hpmmap.h: \
         '{UPDATE}=1 cargo test --package hpmmap-sys --test header' writes it anew"
    );
}

/// bindgen silently leaves out macros that it cannot evaluate.
#[test]
fn no_macro_of_the_header_is_missing() {
    let (header, generated) = (
        fs::read_to_string(HEADER).unwrap(),
        fs::read_to_string(GENERATED).unwrap(),
    );
    let names = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define HPMMAP_"))
        .filter_map(|rest| rest.split_whitespace().next());
    let missing: Vec<&str> = names
        .clone()
        .filter(|name| !generated.contains(&format!("pub const {name}: ")))
        .collect();
    assert!(names.count() > 20 && missing.is_empty(), "{missing:?}");
}
