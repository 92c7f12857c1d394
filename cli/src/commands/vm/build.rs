//! `vm build`

use neonvm_builder::engine::{self, Built, Changes, Format, Request};
use neonvm_builder::source::{Owner, Source};
use serde_json::json;

use crate::args::vm::Build;
use crate::commands::{job, place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings::Settings;

pub(crate) fn run(env: &Env, settings: &Settings, args: &Build, quiet: bool) -> Result<Report> {
    let request = request(env, settings, args)?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let attempt = format!("cannot build a disk from {}", args.from);
    let built = job::run(move || {
        let runtime = job::runtime()?;
        runtime
            .block_on(engine::build(&request, &reporter))
            .map_err(|error| registry::build_error(&attempt, &error))
    })?;
    Ok(Report::document(document(&built)))
}

fn request(env: &Env, settings: &Settings, args: &Build) -> Result<Request> {
    let mut options = registry::options(env, &args.registry, args.arch.as_deref())?;
    options.verify = args.verify;
    options.owner = if args.owner == "root" { Owner::Root } else { Owner::Keep };
    pairs("--build-arg", &args.build_arg)?;
    pairs("--env", &args.env)?;
    if args.out.is_none() && args.tag.is_none() {
        return Err(Error::new(Code::Usage, "nothing to write: neither -O nor -t is given")
            .hint("write a disk file with -O disk.qcow2, or store an image with -t NAME"));
    }
    let key = |path: &std::path::PathBuf| match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::file("read", path, &error)
            .hint("make a key, ssh-keygen -t ed25519, or name the public part of another")),
        Err(error) => Err(Error::file("read", path, &error)),
    };
    let guest = place::guest(env, settings, args.guest.as_deref(), &options.platform.architecture)?;
    let invalid = |error| registry::load_error("invalid --from", &error);
    Ok(Request {
        source: Source::parse(&args.from).map_err(invalid)?,
        options,
        spec: args.file.clone(),
        build_args: args.build_arg.clone(),
        changes: changes(args),
        guest,
        size: args.size.as_deref().map(|text| place::size("--size", text)).transpose()?,
        file: args.out.clone(),
        format: match args.format.as_str() {
            "raw" => Format::Raw,
            "oci" => Format::Oci,
            _ => Format::Qcow2,
        },
        tag: args.tag.as_deref().map(registry::reference).transpose()?,
        store: place::images(env),
        push: args.push,
        sbom: args.sbom.clone(),
        ssh_keys: args.ssh_key.iter().map(key).collect::<Result<_>>()?,
    })
}

/// Everything has the form NAME=VALUE.
fn pairs(flag: &str, all: &[String]) -> Result<()> {
    match all.iter().find(|pair| pair.find('=').is_none_or(|at| at == 0)) {
        None => Ok(()),
        Some(bad) => Err(Error::new(Code::Usage, format!("{bad:?} is not valid for {flag}"))
            .hint("write it as NAME=VALUE")),
    }
}

fn changes(args: &Build) -> Changes {
    Changes {
        entrypoint: args.entrypoint.as_ref().map(|program| vec![program.clone()]),
        cmd: Some(args.command.clone()).filter(|command| !command.is_empty()),
        env: args.env.clone(),
        user: args.user.clone(),
        working_dir: args.workdir.clone(),
        stop_signal: args.stop_signal.clone(),
        ..Changes::default()
    }
}

fn document(built: &Built) -> Document {
    let file = built.file.as_ref().map(|path| path.display().to_string());
    let name = file.clone().or_else(|| built.reference.clone()).unwrap_or_default();
    let value = json!({
        "apiVersion": API_VERSION, "kind": "Build",
        "file": file, "reference": built.reference, "digest": built.digest, "imageDigest": built.image_digest,
        "size": built.size, "stored": built.stored, "source": built.source,
    });
    let (stored, size) = (crate::render::bytes(built.stored), crate::render::bytes(built.size));
    let mut text =
        format!("{name}  {stored} stored, {size} as the VM sees it\n{:<10} {}", "disk", built.digest);
    if let (Some(reference), Some(digest)) = (&built.reference, &built.image_digest) {
        text.push_str(&format!("\n{:<10} {reference}@{digest}", "image"));
    }
    Document {
        value,
        names: vec![format!("disk/{name}")],
        text: Some(text),
        columns: vec![left("NAME"), left("DIGEST"), right("STORED"), right("SIZE")],
        rows: vec![vec![
            name,
            built.digest.clone(),
            crate::render::bytes(built.stored),
            crate::render::bytes(built.size),
        ]],
    }
}
