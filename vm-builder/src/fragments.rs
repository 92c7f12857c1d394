//! Dockerfile fragments of a specification, carried out by buildah: the one part that needs an engine. The engine gets
//! a separate storage in a temporary directory, which is deleted with it.

use std::path::Path;
use std::process::Command;

use crate::reference::Reference;
use crate::source::{Network, Platform, Source};
use crate::spec::Spec;
use crate::tool::{self, Error as ToolError};

/// Why the fragments could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`build` and `merge` of the specification cannot be combined with a Dockerfile")]
    OfDockerfile,
    #[error(transparent)]
    Tool(#[from] ToolError),
}

#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The image that `merge` starts from.
    pub source: &'a Source,
    pub spec: &'a Spec,
    /// Directory that `hostPath` is relative to.
    pub beside: &'a Path,
    /// `NAME=value` for `ARG`s.
    pub build_args: &'a [String],
    pub platform: &'a Platform,
    pub network: &'a Network,
    /// Receives the engine's lines.
    pub line: &'a (dyn Fn(&str) + Sync),
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("source", &self.source)
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// Carries out the fragments; the outcome is an OCI layout inside `work`, which must be an empty directory.
pub fn carry_out(request: &Request<'_>, work: &Path) -> Result<Source, Error> {
    let engine = Engine { request, storage: &work.join("storage") };
    let context = work.join("context");
    write_context(request, &context)?;
    let base = engine.base(work)?;
    let containerfile = work.join("Containerfile");
    write(&containerfile, text(request.spec, &base).as_bytes())?;
    let build = tool::Build {
        file: &containerfile,
        context: &context,
        arguments: request.build_args,
        platform: request.platform,
        network: request.network,
        base: engine.registry(),
        line: request.line,
    };
    let built = tool::build(&build, work)?;
    let _ = std::fs::remove_dir_all(engine.storage);
    Ok(built)
}

/// The whole Dockerfile. The user of the image is restored by the builder, which reads the source's settings.
fn text(spec: &Spec, base: &str) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}\nFROM {base}\nUSER root\n{}\n", part(&spec.build), part(&spec.merge))
}

fn write_context(request: &Request<'_>, context: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(context).map_err(|source| file("make", context, source))?;
    for entry in &request.spec.files {
        let path = context.join(&entry.filename);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|source| file("make", parent, source))?;
        }
        let bytes = match (&entry.content, &entry.host_path) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(relative)) => {
                let from = request.beside.join(relative);
                std::fs::read(&from).map_err(|source| file("read", &from, source))?
            }
            (None, None) => Vec::new(),
        };
        write(&path, &bytes)?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).map_err(|source| file("change", &path, source))?;
    }
    Ok(())
}

struct Engine<'a> {
    request: &'a Request<'a>,
    storage: &'a Path,
}

impl Engine<'_> {
    fn registry(&self) -> Option<&Reference> {
        match self.request.source {
            Source::Registry(reference) => Some(reference),
            _ => None,
        }
    }

    fn run(&self, step: &'static str, command: &mut Command) -> Result<Vec<String>, Error> {
        Ok(tool::run("buildah", step, command, self.request.line)?)
    }

    /// What `FROM` names: a reference, or the image that a local source was made into.
    fn base(&self, work: &Path) -> Result<String, Error> {
        let local = match self.request.source {
            Source::Registry(reference) => return Ok(reference.to_string()),
            Source::RootTree(path) | Source::RootTar(path) => return self.of_files(path, work),
            Source::Dockerfile { .. } => return Err(Error::OfDockerfile),
            // Our names for these are the engine's transports.
            archive => archive.text(),
        };
        let mut pull = tool::buildah(self.storage, "pull");
        pull.arg("--quiet").arg(local);
        Ok(last_line(&self.run("pull", &mut pull)?))
    }

    fn of_files(&self, path: &Path, work: &Path) -> Result<String, Error> {
        let containerfile = work.join("Containerfile.base");
        // `ADD` unpacks archives and copies the content of directories.
        let (context, name) = if path.is_dir() {
            (path.to_owned(), ".".to_owned())
        } else {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (path.parent().unwrap_or(Path::new("/")).to_owned(), name)
        };
        write(
            &containerfile,
            format!("FROM scratch\nADD [\"{}\", \"/\"]\n", name.escape_default()).as_bytes(),
        )?;
        let id = work.join("base");
        let mut build = tool::buildah(self.storage, "build");
        build.args(["--format", "oci", "--timestamp", "0"]).arg("--iidfile").arg(&id);
        build.arg("--platform").arg(self.request.platform.to_string());
        build.arg("--file").arg(&containerfile).arg(context);
        self.run("build", &mut build)?;
        Ok(tool::image(&id)?.trim_start_matches("sha256:").to_owned())
    }
}

fn last_line(lines: &[String]) -> String {
    lines.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|source| file("write", path, source))
}

fn file(verb: &'static str, path: &Path, source: std::io::Error) -> Error {
    ToolError::file(verb, path, source).into()
}
