//! Dockerfiles without a daemon: everything but `RUN`, which needs a running container.
//!
//! [`parse`] reads text into instructions, [`evaluate`] turns them into settings and a list of actions, [`context`] reads what
//! `COPY` takes, [`copy`] puts it into the tree of the base image. All but [`context`] is pure.

mod context;
mod copy;
mod evaluate;
mod ignore;
mod lines;
mod load;
mod parse;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use load::{file_at, load};

use std::path::{Path, PathBuf};

/// Longest Dockerfile, in bytes.
const LONGEST: u64 = 1 << 20;

/// What is wrong, at which line, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) problem: String,
    pub(crate) remedy: Option<&'static str>,
}

impl Fault {
    fn new(line: usize, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into(), remedy: None }
    }

    fn remedy(self, remedy: &'static str) -> Self {
        Self { remedy: Some(remedy), ..self }
    }

    fn at(self, file: &Path) -> crate::source::Error {
        let Self { line, problem, remedy } = self;
        crate::source::Error::Dockerfile { path: file.to_owned(), line, problem, remedy }
    }
}

/// Whether a file of this name is a Dockerfile.
pub(crate) fn is_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_one = |word: &str| {
        name == word || name.starts_with(&format!("{word}.")) || name.ends_with(&format!(".{word}"))
    };
    is_one("dockerfile") || is_one("containerfile")
}

/// The Dockerfile of a directory, if it has one.
pub(crate) fn of_directory(directory: &Path) -> Option<PathBuf> {
    ["Dockerfile", "Containerfile"].map(|name| directory.join(name)).into_iter().find(|path| path.is_file())
}
