//! `image release`

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use neonvm_builder::reference::{Digest, Reference};
use neonvm_builder::save::archive;
use neonvm_builder::store::Image;
use neonvm_builder::{out, push};
use neonvm_images::release::{self, Packed};
use serde_json::json;

use crate::args::image::release::{Command, Load, Push, Save, Which};
use crate::commands::{job, place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left, right, wide};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs a command of `image release`.
pub(crate) fn run(env: &Env, command: &Command, quiet: bool) -> Result<Report> {
    match command {
        Command::List(args) => list(env, args),
        Command::Push(args) => push(env, args, quiet),
        Command::Save(args) => save(env, args, quiet),
        Command::Load(args) => load(env, args, quiet),
    }
}

fn list(env: &Env, which: &Which) -> Result<Report> {
    let (_, images) = open(env, which)?;
    let problems = release::problems(&images, VERSION);
    let report = Report::document(document(&images, &problems));
    Ok(problems.iter().fold(report, |report, problem| report.note(format!("warning: {problem}"))))
}

fn document(images: &[Packed], problems: &[String]) -> Document {
    let item = |image: &Packed| {
        json!({ "name": image.name, "version": image.labels.version, "revision": image.labels.revision,
            "protocols": image.labels.protocols, "platform": image.platform, "size": image.size(),
            "digest": image.digest().to_string() })
    };
    let row = |image: &Packed| {
        let short: String = image.digest().hex().chars().take(12).collect();
        let labels = &image.labels;
        vec![
            image.name.clone(),
            labels.version.clone(),
            crate::render::bytes(image.size()),
            image.platform.clone(),
            short,
            labels.revision.chars().take(12).collect(),
            labels.protocols.clone(),
        ]
    };
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "ReleaseImageList", "problems": problems,
            "items": images.iter().map(item).collect::<Vec<_>>() }),
        names: images.iter().map(|image| format!("image/{}", image.name)).collect(),
        text: None,
        columns: vec![
            left("NAME"),
            left("VERSION"),
            right("SIZE"),
            left("PLATFORM"),
            left("DIGEST"),
            wide("REVISION"),
            wide("PROTOCOLS"),
        ],
        rows: images.iter().map(row).collect(),
    }
}

/// Pushes both images: what the registry lacks, then the manifests.
fn push(env: &Env, args: &Push, quiet: bool) -> Result<Report> {
    let images = fitting(env, &args.which, args.any_version)?;
    // Named before anything is sent.
    named(&images, Some(&args.registry))?;
    let network = registry::network(env, &args.access)?;
    let (reporter, to) = (Reporter::new(env, &args.showing.progress, quiet), args.registry.clone());
    let pushed = job::run(move || {
        let runtime = job::runtime()?;
        let mut pushed: Vec<(String, Digest)> = Vec::new();
        for (reference, packed) in named(&images, Some(&to))? {
            let attempt = format!("cannot push {reference}");
            let digest = runtime
                .block_on(push::push(&packed.image, &reference, &network, &reporter))
                .map_err(|error| registry::load_error(&attempt, &error))?;
            pushed.push((reference.to_string(), digest));
        }
        Ok(pushed)
    })?;
    let item = |(name, digest): &(String, Digest)| json!({ "reference": name, "digest": digest.to_string() });
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "PushedImageList",
            "items": pushed.iter().map(item).collect::<Vec<_>>() }),
        names: pushed.iter().map(|(name, _)| format!("image/{name}")).collect(),
        text: None,
        columns: vec![left("IMAGE"), left("DIGEST")],
        rows: pushed.iter().map(|(name, digest)| vec![name.clone(), digest.to_string()]).collect(),
    }))
}

fn save(env: &Env, args: &Save, quiet: bool) -> Result<Report> {
    let images = fitting(env, &args.copied.which, args.copied.any_version)?;
    let names: Vec<String> =
        named(&images, args.copied.registry.as_deref())?.iter().map(|(name, _)| name.to_string()).collect();
    let reporter = Reporter::new(env, &args.copied.showing.progress, quiet);
    let (file, to) = (args.out.clone(), args.copied.registry.clone());
    let size = job::run(move || {
        let named = named(&images, to.as_deref())?;
        let all: Vec<(_, &Image)> = named.into_iter().map(|(name, packed)| (name, &packed.image)).collect();
        let written = out::whole(&file, |file| archive(&all, file, &reporter));
        let length = written.and_then(|written| Ok(written.metadata()?.len()));
        length.map_err(|error| Error::file("write", &file, &error))
    })?;
    let file = args.out.display().to_string();
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "SavedImages", "file": file, "size": size, "images": names }),
        names: vec![format!("archive/{file}")],
        text: None,
        columns: vec![left("FILE"), right("SIZE"), left("IMAGES")],
        rows: vec![vec![file, crate::render::bytes(size), names.join(",")]],
    }))
}

fn open(env: &Env, which: &Which) -> Result<(PathBuf, Vec<Packed>)> {
    let directory = directory(env, which)?;
    let images = release::open(&directory).map_err(|error| failed("cannot read the images", &error))?;
    Ok((directory, images))
}

/// The images, which must fit this program unless any version will do.
fn fitting(env: &Env, which: &Which, any_version: bool) -> Result<Vec<Packed>> {
    let (directory, images) = open(env, which)?;
    let problems = release::problems(&images, VERSION);
    if problems.is_empty() || any_version {
        return Ok(images);
    }
    let first = Error::new(
        Code::Conflict,
        format!("the images in {} do not match the version of this program", directory.display()),
    );
    let hint =
        "build them from the same commit as neonctl, or use --any-version if they are right for the cluster";
    Err(problems.into_iter().fold(first, Error::cause).hint(hint))
}

/// Where the images are: as given, beside this program, or in cargo's target directory, which is the one above.
fn directory(env: &Env, which: &Which) -> Result<PathBuf> {
    let architecture = which.arch.clone().unwrap_or_else(|| place::architecture().to_owned());
    let places: Vec<PathBuf> = match (&which.from, &env.beside) {
        (Some(from), _) => vec![from.clone()],
        (None, Some(beside)) => [Some(beside.as_path()), beside.parent()]
            .into_iter()
            .flatten()
            .map(|place| place.join(release::DIRECTORY))
            .collect(),
        (None, None) => Vec::new(),
    };
    let is_layout = |path: &Path| path.join("oci-layout").is_file();
    let candidates = places.iter().flat_map(|place| [place.join(&architecture), place.clone()]);
    candidates.into_iter().find(|path| is_layout(path)).ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        Error::new(Code::NotFound, format!("no images for {architecture} in {}", looked.join(" or ")))
            .hint("build them with cargo xtask images, or set their directory with --from")
    })
}

fn named<'a>(images: &'a [Packed], registry: Option<&str>) -> Result<Vec<(Reference, &'a Packed)>> {
    let name = |image: &'a Packed| {
        let version = if image.labels.version.is_empty() { VERSION } else { &image.labels.version };
        let reference = release::reference(registry, &image.name, version);
        let wrong = |error: neonvm_images::Error| {
            Error::new(Code::Usage, error.to_string())
                .hint("write --registry as HOST[:PORT][/PREFIX], in lower case")
        };
        Ok((reference.map_err(wrong)?, image))
    };
    images.iter().map(name).collect()
}

fn failed(attempt: &str, error: &neonvm_images::Error) -> Error {
    match error {
        neonvm_images::Error::Store(error) => registry::load_error(attempt, error),
        other => Error::new(Code::Failed, attempt).cause(other.to_string()),
    }
}

/// Namespace of containerd in which the kubelet looks for images.
const NAMESPACE: &str = "k8s.io";
/// Most bytes of what ctr complains about that are kept.
const KEPT: u64 = 64 << 10;

pub(super) fn load(env: &Env, args: &Load, quiet: bool) -> Result<Report> {
    let images = fitting(env, &args.copied.which, args.copied.any_version)?;
    let names: Vec<String> =
        named(&images, args.copied.registry.as_deref())?.iter().map(|(name, _)| name.to_string()).collect();
    let ctr = env.program("ctr").ok_or_else(|| {
        Error::new(Code::Conflict, "cannot load the images: ctr, which is part of containerd, is not installed on this host")
            .hint(
                "write an archive with neonctl image release save -O neonvm.tar, and load it on the host of containerd; or push the \
                 images to a registry",
            )
    })?;
    let mut command = process::Command::new(ctr);
    if let Some(address) = &args.address {
        command.arg("--address").arg(address);
    }
    command.args(["--namespace", NAMESPACE, "images", "import", "-"]);
    let (reporter, to) =
        (Reporter::new(env, &args.copied.showing.progress, quiet), args.copied.registry.clone());
    job::run(move || import(command, &images, to.as_deref(), &reporter))?;
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "LoadedImages", "namespace": NAMESPACE, "images": names }),
        names: names.iter().map(|name| format!("image/{name}")).collect(),
        text: None,
        columns: vec![left("IMAGE"), left("NAMESPACE")],
        rows: names.iter().map(|name| vec![name.clone(), NAMESPACE.to_owned()]).collect(),
    }))
}

/// Runs `ctr` with the archive on its standard input.
fn import(
    mut command: process::Command,
    images: &[Packed],
    registry: Option<&str>,
    reporter: &Reporter,
) -> Result<()> {
    let attempt = || Error::new(Code::Failed, "cannot load the images into containerd");
    let failed = |error: std::io::Error| attempt().cause(reason(&error));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let program = Path::new(command.get_program()).to_owned();
    let mut child = command.spawn().map_err(|error| Error::file("run", &program, &error))?;
    let errors = child.stderr.take();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut pipe) = errors {
            let _ = (&mut pipe).take(KEPT).read_to_end(&mut text);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    });
    let named = named(images, registry)?;
    let all: Vec<(_, &Image)> = named.into_iter().map(|(name, packed)| (name, &packed.image)).collect();
    let written = match child.stdin.take() {
        Some(pipe) => archive(&all, pipe, reporter),
        None => Ok(()),
    };
    let status = child.wait().map_err(failed)?;
    let message = errors.join().unwrap_or_default();
    if !status.success() {
        // Its own message is more precise than the closed pipe.
        let message = if message.is_empty() { status.to_string() } else { message };
        return Err(attempt()
            .cause(format!("ctr: {message}"))
            .hint("containerd must be running, and its socket accessible: try sudo"));
    }
    written.map_err(failed)
}
