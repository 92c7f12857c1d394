//! Dockerfiles: a container tool of this host builds the image, and the builder reads the archive that it wrote.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source::{Error, Options, Progress, Source};
use crate::tool;

pub(crate) struct Build<'a> {
    pub(crate) file: &'a Path,
    /// `NAME=VALUE` for its `ARG`s.
    pub(crate) arguments: &'a [String],
    pub(crate) options: &'a Options,
    pub(crate) progress: &'a dyn Progress,
}

/// Tools in order of preference: buildah needs no daemon and keeps no image on this host.
const TOOLS: [Tool; 3] = [Tool::Buildah, Tool::Podman, Tool::Docker];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Buildah,
    Podman,
    Docker,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Buildah => "buildah",
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    /// The first tool in the directories of `PATH`.
    fn find(path: &std::ffi::OsStr) -> Option<Self> {
        let is_there = |tool: &Self| std::env::split_paths(path).any(|part| part.join(tool.name()).is_file());
        TOOLS.into_iter().find(is_there)
    }
}

/// Builds the image; the returned source is inside `work`, which must be an empty directory.
pub(crate) fn build(build: &Build<'_>, work: &Path) -> Result<Source, Error> {
    let tool = Tool::find(&std::env::var_os("PATH").unwrap_or_default()).ok_or(Error::NoContainerTool)?;
    carry_out(tool, build, work).map_err(|error| Error::Dockerfile { path: build.file.to_owned(), error })
}

fn carry_out(tool: Tool, build: &Build<'_>, work: &Path) -> Result<Source, tool::Error> {
    let build = tool::Build {
        file: build.file,
        context: context(build.file),
        arguments: build.arguments,
        platform: &build.options.platform,
        network: &build.options.network,
        base: None,
        line: &|text| build.progress.line(text),
    };
    match tool {
        Tool::Buildah => tool::build(&build, work),
        Tool::Podman | Tool::Docker => into_store(tool, &build, work),
    }
}

/// Builds into the tool's own store of images, and saves the image into `work`.
fn into_store(tool: Tool, build: &tool::Build<'_>, work: &Path) -> Result<Source, tool::Error> {
    let (id, archive) = (work.join("image"), work.join("image.tar"));
    let mut command = Command::new(tool.name());
    command.arg("build");
    let mut save = Command::new(tool.name());
    save.arg("save").arg("--output").arg(&archive);
    if tool == Tool::Podman {
        command.args(["--format", "oci", "--timestamp", "0"]);
        save.args(["--format", "oci-archive"]);
    } else {
        command.env("SOURCE_DATE_EPOCH", "0");
    }
    tool::common(&mut command, build, &id);
    tool::run(tool.name(), "build", command.arg(build.context), build.line)?;
    tool::run(tool.name(), "save", save.arg(tool::image(&id)?), build.line)?;
    Ok(match tool {
        Tool::Podman => Source::OciArchive { path: archive, name: None },
        _ => Source::DockerArchive { path: archive, name: None },
    })
}

/// The directory whose files `COPY` takes.
fn context(file: &Path) -> &Path {
    file.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
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

/// Where a Dockerfile is: the file itself, or that of a directory.
pub(crate) fn file_at(path: PathBuf) -> Result<PathBuf, Error> {
    if path.is_dir() {
        return of_directory(&path).ok_or_else(|| Error::SourceMissing(path.join("Dockerfile")));
    }
    if path.exists() { Ok(path) } else { Err(Error::SourceMissing(path)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tool_that_is_installed_is_chosen() {
        let bin = tempfile::tempdir().unwrap();
        let find = || Tool::find(bin.path().as_os_str());
        assert_eq!(find(), None);
        for tool in TOOLS.into_iter().rev() {
            std::fs::write(bin.path().join(tool.name()), "").unwrap();
            assert_eq!(find(), Some(tool));
        }
    }

    #[test]
    fn the_context_is_the_directory_of_the_file() {
        assert_eq!(context(Path::new("Dockerfile")), Path::new("."));
        assert_eq!(context(Path::new("web/Dockerfile")), Path::new("web"));
    }
}
