//! The difference of two values in the form in which a real API server prints it (the package `go-cmp`): pseudo code of
//! the type, with `-` and `+` before the lines that changed, and runs of unchanged fields left out.
//!
//! That package does not give one text: by the second in which its process started it indents with spaces or with spaces
//! that do not break, and matches lists from their beginning or from their end. Here it is spaces, and lists are matched
//! at both ends, then from their beginning. Texts of several lines are not split by line.

mod layout;
mod render;
mod tree;

use super::internal::Held;

/// What changed; empty if nothing did.
pub(super) fn between(old: &Held, new: &Held) -> String {
    let node = tree::compare(Some(old), Some(new));
    if node.different == 0 { String::new() } else { render::whole(&node).to_text() }
}

#[cfg(test)]
mod tests;
