//! The commands of the book in `docs`, as its README describes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod checked;
mod executed;
mod session;

use std::path::{Path, PathBuf};

use neonvm_e2e::book::{self, Page};

/// Where the pages are.
fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src")
}

fn page(name: &str) -> Page {
    let text = std::fs::read_to_string(pages().join(name)).unwrap();
    book::parse(&text).unwrap_or_else(|error| panic!("docs/src/{name}: {error}"))
}

/// The names of all pages, in the order of the table of contents.
fn contents() -> Vec<String> {
    let text = std::fs::read_to_string(pages().join("SUMMARY.md")).unwrap();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.map(str::to_owned).collect()
}
