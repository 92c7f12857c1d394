//! Every parser of ours, and every small foreign one, that reads bytes of a stranger: a guest, the author of an object, an image, a
//! registry, a peer on the network. Each is a [`Target`]: it gets any bytes and must return, within time and memory, without a
//! panic. `tests/it.rs` runs all of them over damaged examples in the gate; `cargo xtask fuzz` runs them under libFuzzer.
//!
//! Not here, because their authors fuzz them: JSON (serde_json), HTTP (hyper), TLS and certificates (rustls, webpki), SSH (russh),
//! compression (flate2, zstd, lzma-rust2). YAML is here: the reader is young.

mod author;
mod guest;
mod image;
mod peer;

/// A parser under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name: that of its program for libFuzzer.
    pub name: &'static str,
    /// Who sends the bytes.
    pub from: &'static str,
    /// Examples that the parser accepts: what a fuzzer starts from.
    pub examples: &'static [&'static [u8]],
    /// Reads the bytes.
    pub run: fn(&[u8]),
}

/// All targets.
pub fn targets() -> impl Iterator<Item = &'static Target> {
    [guest::TARGETS, author::TARGETS, image::TARGETS, peer::TARGETS].into_iter().flatten()
}

/// Runs one target.
///
/// # Panics
/// If there is no target of the name, or it has a fault.
#[expect(clippy::panic, reason = "a program that runs nothing must not pass")]
pub fn run(name: &str, bytes: &[u8]) {
    match targets().find(|target| target.name == name) {
        Some(target) => (target.run)(bytes),
        None => panic!("no target {name}"),
    }
}

/// The bytes as text; what is not UTF-8 becomes U+FFFD, as where the product reads text.
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The first line, and what follows it.
fn split(bytes: &[u8]) -> (std::borrow::Cow<'_, str>, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (first, rest) = bytes.split_at(end);
    (text(first), rest.get(1..).unwrap_or_default())
}
