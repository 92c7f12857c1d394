//! Why an image could not be made or read.

use std::io;
use std::path::{Path, PathBuf};

/// Failure of building or reading images.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A recipe cannot be used.
    #[error("{}: {problem}", path.display())]
    Recipe {
        /// Its file.
        path: PathBuf,
        /// The field, what is wrong with it, and what to do.
        problem: String,
    },
    /// A file or directory could not be used.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A program that does part of the work failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Its name.
        program: String,
        /// What it printed last, or why it does not start.
        output: String,
    },
    /// No package has a file that the recipe names.
    #[error("no package has {path}; name the package that has it in the recipe's packages")]
    NotPackaged {
        /// The file.
        path: String,
    },
    /// No package has a library that a program needs.
    #[error(
        "{needed_by} needs {library}, which no package has; name the package that has it in the recipe's packages"
    )]
    Library {
        /// The library.
        library: String,
        /// Who needs it.
        needed_by: String,
    },
    /// A program cannot be read.
    #[error("{path} is damaged: {problem}")]
    Elf {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A program is not for the image's architecture.
    #[error("{} is not a program for {architecture}; give others with --programs", path.display())]
    Architecture {
        /// The file.
        path: PathBuf,
        /// What the image is for.
        architecture: &'static str,
    },
    /// Two things would be at one place.
    #[error("{path} comes from two places of the recipe, which differ; remove one")]
    Twice {
        /// The path in the image.
        path: String,
    },
    /// The kernel cannot be had.
    #[error(transparent)]
    Kernel(#[from] neonvm_kernel::Error),
    /// The layout cannot be read or written.
    #[error(transparent)]
    Store(#[from] neonvm_builder::source::Error),
    /// What should be a release is none.
    #[error("{}: {problem}", path.display())]
    Release {
        /// Its directory.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl Error {
    pub(crate) fn file(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { verb, path, source }
    }
}
