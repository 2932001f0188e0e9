//! `src/events.rs` is the output of bindgen for `bpf/events.h`. It is kept in the tree, so that
//! building the command does not need bindgen.

use std::env;
use std::fs;

use bindgen::EnumVariation;
use bindgen::callbacks::{DeriveInfo, IntKind, ParseCallbacks};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/events.h");
const GENERATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/events.rs");
/// If it is set, the file is written instead of compared.
const UPDATE: &str = "HPMMAP_UPDATE_BINDINGS";

#[derive(Debug)]
struct AsBytes;

impl ParseCallbacks for AsBytes {
    fn add_derives(&self, _: &DeriveInfo) -> Vec<String> {
        ["FromBytes", "IntoBytes", "Immutable"]
            .map(|name| format!("zerocopy::{name}"))
            .into()
    }

    fn int_macro(&self, name: &str, _: i64) -> Option<IntKind> {
        name.starts_with("FAULT_F_").then_some(IntKind::U8)
    }
}

#[test]
fn the_bindings_are_those_of_the_header() {
    let generated = bindgen::builder()
        .header(HEADER)
        .allowlist_file(".*/bpf/events[.]h")
        .parse_callbacks(Box::new(AsBytes))
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .formatter(bindgen::Formatter::Prettyplease)
        .disable_header_comment()
        .raw_line("//! Made by bindgen from `bpf/events.h`: `tests/header.rs`.")
        .generate()
        .expect("bindgen reads the header")
        .to_string();
    if env::var_os(UPDATE).is_some() {
        fs::write(GENERATED, generated).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(GENERATED).unwrap() == generated,
        "src/events.rs is not what bindgen makes of bpf/events.h: \
         '{UPDATE}=1 cargo test --package hpmmap-bpf --test header' writes it anew"
    );
}
