//! From a source to a disk: load, carry out fragments, inject the guest, write, publish. Every output appears whole
//! or not at all, and the same input gives the same bytes.

mod error;
mod output;
mod program;
mod publish;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use neonvm_disk::ext4;
use neonvm_disk::tree::Time;
use neonvm_types::guest::{Console, ImageConfig, Monitor, Process, Service};

pub use error::Error;

use crate::attributes;
use crate::cache::Cache;
use crate::content;
use crate::fragments;
use crate::inittab;
use crate::inject;
use crate::out;
use crate::record::{self, Record};
use crate::reference::{Digest, Reference};
use crate::sbom;
use crate::source::{self, Loaded, Options, Progress, Source};
use crate::spec::{Spec, SpecMonitor};

/// Free space of a disk without a given size, in bytes. It costs nothing until it is written to.
const FREE: u64 = 1 << 30;

/// Where the SSH server of the guest looks for keys of the disk itself.
const AUTHORIZED_KEYS: &str = "/neonvm/ssh/authorized_keys";

/// Form of an output file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// QEMU's format with zstd-compressed clusters.
    #[default]
    Qcow2,
    /// The disk byte for byte, sparse.
    Raw,
    /// A tar of an OCI image layout with an image that holds `/disk.qcow2`.
    Oci,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub source: Source,
    pub options: Options,
    pub spec: Option<PathBuf>,
    /// `NAME=value` for the `ARG`s of a Dockerfile, and of the fragments of the specification.
    pub build_args: Vec<String>,
    /// What is different from the settings of the image.
    pub changes: Changes,
    pub guest: PathBuf,
    /// Size of the disk in bytes. None: what the content needs and 1 GiB.
    pub size: Option<u64>,
    pub file: Option<PathBuf>,
    pub format: Format,
    /// Name in the local image store.
    pub tag: Option<Reference>,
    pub store: PathBuf,
    /// Whether the image is pushed under its name.
    pub push: bool,
    pub sbom: Option<PathBuf>,
    /// Lines of `authorized_keys` for the disk itself; a runner adds further keys.
    pub ssh_keys: Vec<String>,
}

/// Changes of an image's settings; what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The program; the image's `Cmd` is then dropped, as with `docker run --entrypoint`.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments, or program and arguments if there is no entry point.
    pub cmd: Option<Vec<String>>,
    /// `NAME=value`, over the image's.
    pub env: Vec<String>,
    pub user: Option<String>,
    pub working_dir: Option<String>,
    pub stop_signal: Option<String>,
    /// The monitor, if the specification has none.
    pub monitor: Option<Monitor>,
    /// Whether the entries of the image's `/etc/inittab` become services.
    pub inittab: bool,
}

impl Changes {
    /// The workload of an image with these settings.
    fn apply(&self, settings: &Process) -> Process {
        let or = |change: &Option<String>, own: &String| change.clone().unwrap_or_else(|| own.clone());
        let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
        let replaced = |pair: &&String| self.env.iter().any(|new| name(new) == name(pair));
        let kept = settings.env.iter().filter(|pair| !replaced(pair));
        let cmd = if self.entrypoint.is_some() { Vec::new() } else { settings.cmd.clone() };
        Process {
            entrypoint: self.entrypoint.clone().unwrap_or_else(|| settings.entrypoint.clone()),
            cmd: self.cmd.clone().unwrap_or(cmd),
            env: kept.chain(&self.env).cloned().collect(),
            user: or(&self.user, &settings.user),
            working_dir: or(&self.working_dir, &settings.working_dir),
            stop_signal: or(&self.stop_signal, &settings.stop_signal),
        }
    }
}

/// Steps of a build, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Find, fetch and flatten the image.
    Load,
    /// Carry out `build` and `merge`.
    Fragments,
    Inject,
    Write,
    /// Store the image, and push it if requested.
    Publish,
}

impl Step {
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Fragments => "fragments",
            Self::Inject => "inject",
            Self::Write => "write",
            Self::Publish => "store",
        }
    }
}

pub trait Reporter: Progress {
    fn begin(&self, step: Step, detail: &str);
    fn end(&self, step: Step, detail: &str);
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Built {
    pub file: Option<PathBuf>,
    /// SHA-256 of the output file, or of the disk if there is no file.
    pub digest: String,
    /// Bytes of the disk as it is stored.
    pub stored: u64,
    /// Bytes of the disk as the VM sees it.
    pub size: u64,
    pub reference: Option<String>,
    pub image_digest: Option<String>,
    pub source: String,
}

/// Builds a disk. File work is done in place: call it from a thread that may block.
pub async fn build(request: &Request, reporter: &dyn Reporter) -> Result<Built, Error> {
    request.check()?;
    let spec = request.spec.as_deref().map(Spec::read).transpose()?.unwrap_or_default();
    let guest: Arc<[u8]> =
        std::fs::read(&request.guest).map_err(|error| Error::guest(&request.guest, &error))?.into();
    error::check_guest(&request.guest, &guest, &request.options.platform)?;
    if spec.has_fragments() && matches!(request.source, Source::Dockerfile { .. }) {
        return Err(fragments::Error::OfDockerfile.into());
    }
    reporter.begin(Step::Load, &request.source.text());
    let source = with_arguments(&request.source, &request.build_args);
    let mut loaded = source::load(&source, &request.options, reporter).await?;
    reporter.end(Step::Load, &summary(&loaded));
    // Lives until the disk is written: the tree's contents are in it.
    let mut work = None;
    if spec.has_fragments() {
        reporter.begin(Step::Fragments, "");
        let directory = Cache::open(&request.options.cache)?.work()?;
        loaded = with_fragments(request, &spec, loaded, directory.path(), reporter).await?;
        work = Some(directory);
        reporter.end(Step::Fragments, &summary(&loaded));
    } else if !spec.files.is_empty() {
        reporter.note("`files` of the specification are for `build` and `merge`, which are not there");
    }
    reporter.begin(Step::Inject, "");
    if let Some(text) = attributes::settle(&mut loaded.tree, &*loaded.sources)? {
        reporter.note(&text);
    }
    let mut services = spec.services();
    services.extend(of_inittab(request, &loaded, reporter));
    let process = request.changes.apply(&loaded.settings.process);
    let architecture = request.options.platform.architecture.as_str();
    let image = program::Image { tree: &loaded.tree, sources: &*loaded.sources, architecture };
    program::warnings(&image, &process, &services).iter().for_each(|text| reporter.note(text));
    let identity = add_guest(request, &spec, services, &mut loaded, &guest)?;
    reporter
        .end(Step::Inject, &format!("guest {}, {} commands", env!("CARGO_PKG_VERSION"), spec.commands.len()));
    if let Some(path) = &request.sbom {
        write_sbom(path, &loaded)?;
    }
    let built = output::write(request, &loaded, &identity, reporter).await?;
    drop(work);
    Ok(built)
}

impl Request {
    fn check(&self) -> Result<(), Error> {
        if self.file.is_none() && self.tag.is_none() {
            return Err(Error::NoOutput);
        }
        if self.push && self.tag.is_none() {
            return Err(Error::PushWithoutTag);
        }
        if let Some(parent) =
            self.file.as_deref().and_then(Path::parent).filter(|path| !path.as_os_str().is_empty())
            && !parent.is_dir()
        {
            return Err(Error::NoDirectory(parent.to_owned()));
        }
        Ok(())
    }
}

/// A source with the arguments of the build, if it takes any.
fn with_arguments(source: &Source, build_args: &[String]) -> Source {
    match source {
        Source::Dockerfile { path, .. } => {
            Source::Dockerfile { path: path.clone(), arguments: build_args.to_vec() }
        }
        other => other.clone(),
    }
}

fn summary(loaded: &Loaded) -> String {
    let digest = loaded.digest.hex();
    let short = digest.get(..12).unwrap_or(&digest);
    match loaded.layers.len() {
        0 => format!("a directory, {short}"),
        1 => format!("1 layer, {short}"),
        layers => format!("{layers} layers, {short}"),
    }
}

/// Carries out the fragments and loads what came out. Settings that the source has and the fragments do not change
/// stay; the user is always the source's, because fragments run as root.
async fn with_fragments(
    request: &Request,
    spec: &Spec,
    before: Loaded,
    work: &Path,
    reporter: &dyn Reporter,
) -> Result<Loaded, Error> {
    let beside = request.spec.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    let fragments = fragments::Request {
        source: &request.source,
        spec,
        beside,
        build_args: &request.build_args,
        platform: &request.options.platform,
        network: &request.options.network,
        line: &|line| reporter.line(line),
    };
    let source = fragments::carry_out(&fragments, work)?;
    let options = Options { cache: work.join("cache"), ..request.options.clone() };
    let mut after = source::load(&source, &options, reporter).await?;
    after.settings.process.user = before.settings.process.user;
    after.reference = before.reference;
    after.settings.created = before.settings.created;
    Ok(after)
}

/// Services in the image's own table, if they are requested.
fn of_inittab(request: &Request, loaded: &Loaded, reporter: &dyn Reporter) -> Vec<Service> {
    let limit = 64 << 10;
    let text = request
        .changes
        .inittab
        .then(|| content::read(&loaded.tree, &*loaded.sources, b"/etc/inittab", limit));
    let Some(text) = text.flatten() else { return Vec::new() };
    let (services, skipped) = inittab::services(&String::from_utf8_lossy(&text));
    skipped.iter().for_each(|line| reporter.note(line));
    services
}

/// Adds the guest; returns what identifies the outcome.
fn add_guest(
    request: &Request,
    spec: &Spec,
    services: Vec<Service>,
    loaded: &mut Loaded,
    guest: &Arc<[u8]>,
) -> Result<Digest, Error> {
    let settings = &loaded.settings;
    let process = request.changes.apply(&settings.process);
    let device = if request.options.platform.architecture == "arm64" { "ttyAMA0" } else { "ttyS0" };
    let config = ImageConfig {
        process,
        services,
        shutdown_hook: spec.shutdown_hook.clone(),
        console: Some(Console { device: device.to_owned() }),
        monitor: spec.monitor.as_ref().map(SpecMonitor::settings).or_else(|| request.changes.monitor.clone()),
        source: Some(loaded.reference.clone()),
    };
    let spec_digest = match &request.spec {
        None => None,
        Some(path) => {
            let text = std::fs::read(path).map_err(|error| Error::file("read", path, error))?;
            Some(Digest::from_bytes(&text).to_string())
        }
    };
    let record = Record {
        source: loaded.reference.clone(),
        source_digest: loaded.digest.to_string(),
        architecture: request.options.platform.architecture.clone(),
        builder: env!("CARGO_PKG_VERSION").to_owned(),
        guest_digest: Digest::from_bytes(guest).to_string(),
        spec_digest,
        created: settings.created.clone(),
    };
    let time = created(settings.created.as_deref());
    let tree = &mut loaded.tree;
    inject::inject(tree, guest, &config, time)?;
    let text: Arc<[u8]> = serde_json::to_vec_pretty(&record).unwrap_or_default().into();
    inject::put(tree, record::PATH, 0o644, time, &text)?;
    let keys = request.ssh_keys.join("\n") + "\n";
    if !request.ssh_keys.is_empty() {
        inject::put(tree, AUTHORIZED_KEYS, 0o600, time, &keys.as_bytes().into())?;
    }
    let config = serde_json::to_vec(&config).unwrap_or_default();
    Ok(Digest::from_bytes(
        &[&*text, &config, keys.as_bytes(), &request.size.unwrap_or(0).to_le_bytes()].concat(),
    ))
}

/// The time of what is injected: that of the image, so that it is the same in every build.
fn created(text: Option<&str>) -> Time {
    let parsed = text.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    parsed.map_or(Time::default(), |time| Time { seconds: time.as_second(), nanoseconds: 0 })
}

fn write_sbom(path: &Path, loaded: &Loaded) -> Result<(), Error> {
    let created = loaded.settings.created.as_deref();
    let document = sbom::document(
        &loaded.tree,
        &*loaded.sources,
        &loaded.reference,
        &loaded.digest.to_string(),
        created,
    );
    let text = serde_json::to_string_pretty(&document).unwrap_or_default() + "\n";
    out::text(path, &text).map_err(|error| Error::file("write", path, error))
}

/// The file system of a loaded image. Its identity decides about its UUID and its hash seed.
fn file_system<'a>(
    request: &Request,
    loaded: &'a Loaded,
    identity: &Digest,
) -> Result<ext4::FileSystem<'a>, Error> {
    let half = |salt: &str| -> [u8; 16] {
        let digest = Digest::from_bytes(format!("{salt} {identity}").as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(digest.as_bytes().first_chunk::<16>().unwrap_or(&[0; 16]));
        bytes
    };
    let mut uuid = half("uuid");
    // Version 8 of RFC 9562: content of our own.
    uuid[6] = (uuid[6] & 0x0f) | 0x80;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    let options = ext4::Options {
        size: request.size,
        margin: FREE,
        label: "vmroot".to_owned(),
        uuid,
        hash_seed: half("hash seed"),
        created: created(loaded.settings.created.as_deref()),
    };
    Ok(ext4::FileSystem::plan(&loaded.tree, &*loaded.sources, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_replace_what_they_name() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let settings = Process {
            entrypoint: words("entry"),
            cmd: words("a b"),
            env: words("A=1 AB=2"),
            user: "u".into(),
            ..Process::default()
        };
        let same = Changes::default().apply(&settings);
        assert_eq!((same.entrypoint, same.cmd, same.user.as_str()), (words("entry"), words("a b"), "u"));
        let other = Changes { entrypoint: Some(words("new")), env: words("A=3"), ..Changes::default() }
            .apply(&settings);
        assert_eq!((other.entrypoint, other.cmd.len(), other.env), (words("new"), 0, words("AB=2 A=3")));
        let args = Changes { cmd: Some(words("c")), ..Changes::default() }.apply(&settings);
        assert_eq!((args.entrypoint, args.cmd), (words("entry"), words("c")));
    }
}
