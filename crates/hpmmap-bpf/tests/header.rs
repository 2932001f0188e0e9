//! `src/events.rs` and `src/counts.rs` are the output of bindgen for `bpf/events.h` and
//! `bpf/noise.h`. They are kept in the tree, so that building the command does not need bindgen.

use std::env;
use std::fs;

use bindgen::EnumVariation;
use bindgen::callbacks::{DeriveInfo, IntKind, ParseCallbacks};

/// If it is set, the files are written instead of compared.
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
fn the_bindings_are_those_of_the_headers() {
    check("events.h", "events.rs");
    check("noise.h", "counts.rs");
}

fn check(header: &str, generated: &str) {
    let path = format!("{}/src/{generated}", env!("CARGO_MANIFEST_DIR"));
    let expected = bindgen::builder()
        .header(format!("{}/bpf/{header}", env!("CARGO_MANIFEST_DIR")))
        .allowlist_file(format!(".*/bpf/{}", header.replace('.', "[.]")))
        .parse_callbacks(Box::new(AsBytes))
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .formatter(bindgen::Formatter::Prettyplease)
        .disable_header_comment()
        .raw_line(format!(
            "//! Made by bindgen from `bpf/{header}`: `tests/header.rs`."
        ))
        .generate()
        .expect("bindgen reads the header")
        .to_string();
    if env::var_os(UPDATE).is_some() {
        fs::write(path, expected).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(path).unwrap() == expected,
        "src/{generated} is not what bindgen makes of bpf/{header}: \
         '{UPDATE}=1 cargo test --package hpmmap-bpf --test header' writes it anew"
    );
}
