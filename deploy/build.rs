//! Lists the files of `manifests`, so that a new one is part of the installation without a line of code.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let output = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let directory = own.join("manifests");
    println!("cargo::rerun-if-changed=manifests");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&directory)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "yaml") {
            files.push(file);
        }
    }
    files.sort();
    let mut code = String::from("&[\n");
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        // Writing to a string does not fail.
        let _ = writeln!(code, "    ({name:?}, include_str!({:?})),", path(file));
    }
    code.push_str("]\n");
    std::fs::write(output.join("manifests.rs"), code)
}

fn path(file: &Path) -> String {
    file.to_string_lossy().into_owned()
}
