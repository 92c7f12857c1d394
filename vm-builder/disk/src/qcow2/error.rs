//! Why a qcow2 file cannot be used.

use std::io;

/// Why a qcow2 file cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What was read or written.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Not a qcow2 file at all.
    #[error("not a qcow2 file")]
    NotQcow2,
    /// A feature that is not implemented, by name.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// Something in the file is not possible.
    #[error("corrupt qcow2 file: {structure}: {problem}")]
    Corrupt {
        structure: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// An option is not valid.
    #[error("{0}")]
    Option(String),
}

impl Error {
    /// Something in the file is not possible.
    pub(crate) fn corrupt(structure: &'static str, problem: impl Into<String>) -> Self {
        Self::Corrupt { structure, problem: problem.into() }
    }
}

/// Names what was read or written when it failed.
pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { what, source }
}
