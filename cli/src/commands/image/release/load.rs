//! `image release load`

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use neonvm_builder::save::archive;
use neonvm_builder::store::Image;
use neonvm_images::release::Packed;
use serde_json::json;

use super::{fitting, named};
use crate::args::image::release::Load;
use crate::commands::job;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left};

/// Namespace of containerd in which the kubelet looks for images.
const NAMESPACE: &str = "k8s.io";
/// Most bytes of what ctr complains about that are kept.
const KEPT: u64 = 64 << 10;

pub(super) fn run(env: &Env, args: &Load, quiet: bool) -> Result<Report> {
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
    let mut command = Command::new(ctr);
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
    mut command: Command,
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
