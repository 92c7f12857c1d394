//! `image inspect`

use std::path::{Path, PathBuf};

use neonvm_builder::inspect::{self, Boot, Inspection, USUAL_PORTS};
use neonvm_builder::store::Image;
use neonvm_kernel::store as kernels;
use serde_json::{Value, json};

use super::stored;
use crate::args::image::Inspect;
use crate::commands::local::neond;
use crate::commands::{doctor, kernel, place};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

pub(crate) fn run(env: &Env, settings: &Settings, args: &Inspect) -> Result<Report> {
    let path = Path::new(&args.image);
    if path.is_file() {
        return of_disk(env, settings, args, path);
    }
    match stored(env, &args.image)? {
        Some(_) if args.boot_command => {
            let text = format!("image {:?} is not a disk file", args.image);
            let hint = format!("write its disk first: neonctl image export {} -O disk.qcow2", args.image);
            Err(Error::new(Code::Conflict, text).hint(hint))
        }
        Some((_, image)) => Ok(Report::document(of_image(&args.image, &image))),
        None => Err(Error::new(Code::NotFound, format!("neither a file nor a stored image: {}", args.image))
            .hint("list the images: neonctl image list")),
    }
}

fn of_disk(env: &Env, settings: &Settings, args: &Inspect, path: &Path) -> Result<Report> {
    let attempt = || format!("cannot inspect {}", path.display());
    let failed = |error: inspect::Error| {
        Error::new(Code::Failed, attempt()).cause(error.to_string()).hint("build it again: neonctl vm build")
    };
    let found = inspect::inspect(path).map_err(failed)?;
    if args.boot_command {
        return boot_command(env, settings, args, path, &found);
    }
    if args.verify {
        inspect::verify(path).map_err(failed)?;
    }
    if !found.readable && found.record.is_none() {
        return Err(Error::new(Code::Failed, attempt())
            .cause("it has no file system that can be read")
            .hint("a VM disk is a file of neonctl vm build or neonctl image export"));
    }
    let report = Report::document(document(path, &found));
    Ok(if args.verify { report.note("verified: all tables are consistent") } else { report })
}

fn boot_command(
    env: &Env,
    settings: &Settings,
    args: &Inspect,
    path: &Path,
    found: &Inspection,
) -> Result<Report> {
    let (kernel, initramfs) = kernel_files(env, args.kernel.as_deref())?;
    let forward = args.forward.iter().map(|text| ports(text)).collect::<Result<Vec<_>>>()?;
    // So that the command works in every directory.
    let disk = std::path::absolute(path).map_err(|error| Error::file("find", path, &error))?;
    let accelerator = match args.accel.as_str() {
        "auto" if doctor::runs_kvm(neond(env, settings).ok().as_deref()) => "kvm",
        "auto" => "tcg",
        chosen => chosen,
    };
    let boot = Boot {
        disk: &disk,
        format: found.format,
        kernel: &kernel,
        initramfs: initramfs.as_deref(),
        accelerator,
        forward: if forward.is_empty() { &USUAL_PORTS } else { &forward },
    };
    Ok(Report::text(inspect::shell_line(&boot.command()) + "\n"))
}

fn kernel_files(env: &Env, name: Option<&str>) -> Result<(PathBuf, Option<PathBuf>)> {
    if let Some(path) = name.map(Path::new).filter(|path| path.is_file()) {
        return Ok((path.to_owned(), None));
    }
    let store = kernels::Store::new(place::kernels(env));
    let kernel = store.get(name).map_err(|error| kernel::failure("cannot print the boot command", &error))?;
    Ok((kernel.image(), kernel.initramfs()))
}

fn ports(text: &str) -> Result<(u16, u16)> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let pair = text.split_once(':').and_then(|(host, guest)| Some((port(host)?, port(guest)?)));
    pair.ok_or_else(|| {
        Error::new(Code::Usage, format!("{text:?} is not valid for --forward"))
            .hint("write it as HOST:GUEST, such as 5432:5432")
    })
}

fn document(path: &Path, found: &Inspection) -> Document {
    let name = path.display().to_string();
    let record = found.record.clone().unwrap_or_default();
    let process = found.config.clone().unwrap_or_default().process;
    let entry =
        neonvm_builder::inspect::shell_line(&[process.entrypoint.clone(), process.cmd.clone()].concat());
    let user = if process.user.is_empty() { "root" } else { &process.user };
    let kind = [found.format, &found.detail]
        .iter()
        .filter(|text| !text.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(" ");
    let other = "a disk of another tool";
    let services: Vec<String> = found
        .config
        .iter()
        .flat_map(|config| config.services.iter().map(|service| service.name.clone()))
        .collect();
    let mut lines = vec![(
        "kind",
        format!(
            "VM disk, {kind}, {} virtual, {} stored",
            crate::render::bytes(found.size),
            crate::render::bytes(found.stored)
        ),
    )];
    if found.record.is_some() {
        lines.push(("from", format!("{} ({})", record.source, record.source_digest)));
        lines.push(("guest", format!("{} ({})", record.builder, record.guest_digest)));
        lines.push(("entry", format!("{entry}, user {user}")));
        lines.push(("services", if services.is_empty() { "-".to_owned() } else { services.join(", ") }));
    } else {
        lines.push(("from", other.to_owned()));
    }
    let text = lines.iter().map(|(key, value)| format!("{key:<10} {value}")).collect::<Vec<_>>().join("\n");
    Document {
        value: json!({
            "apiVersion": API_VERSION, "kind": "Disk", "name": name, "format": found.format, "size": found.size,
            "stored": found.stored, "record": found.record, "config": found.config,
        }),
        names: vec![format!("disk/{name}")],
        text: Some(text),
        columns: vec![left("NAME"), left("FORMAT"), left("SIZE"), left("SOURCE")],
        rows: vec![vec![name, found.format.to_owned(), crate::render::bytes(found.size), record.source]],
    }
}

fn of_image(name: &str, image: &Image) -> Document {
    let json_of = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let config = match &image.config.content {
        neonvm_builder::store::BlobContent::Bytes(bytes) => json_of(bytes),
        neonvm_builder::store::BlobContent::File(path) => json_of(&std::fs::read(path).unwrap_or_default()),
    };
    let source = config
        .pointer("/config/Labels/tech.neon.vm.source")
        .and_then(Value::as_str)
        .unwrap_or("-")
        .to_owned();
    let size: u64 = image.layers.iter().map(|layer| layer.descriptor.size).sum();
    let text = format!(
        "kind       image with a VM disk, {} stored\ndigest     {}\nfrom       {source}",
        crate::render::bytes(size),
        image.digest()
    );
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Image", "name": name, "digest": image.digest().to_string(),
            "manifest": json_of(&image.manifest), "config": config }),
        names: vec![format!("image/{name}")],
        text: Some(text),
        columns: vec![left("NAME"), left("DIGEST"), left("SIZE"), left("SOURCE")],
        rows: vec![vec![name.to_owned(), image.digest().to_string(), crate::render::bytes(size), source]],
    }
}
