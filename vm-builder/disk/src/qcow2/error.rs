//! Why a qcow2 file cannot be used.

use std::io;

/// Why a qcow2 file cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
    #[error("not a qcow2 file")]
    NotQcow2,
    #[error("{0} is not supported")]
    Unsupported(String),
    #[error("corrupt qcow2 file: {structure}: {problem}")]
    Corrupt { structure: &'static str, problem: String },
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
