//! `xtask images`: the container images of services and runner, from the Containerfiles of `deploy/images`. Builds our programs, static,
//! and has buildah or podman build the images into an OCI image layout, or docker into its own store.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::package::target;
use crate::process::installed;
use crate::shipped::{self, DIST, Strip, strip};
use crate::{commit, guest, kernel, sbom};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names of the images, which are those of their Containerfiles.
const IMAGES: [&str; 2] = ["neond", "neonvm-runner"];
/// Programs that build from Containerfiles, the first that is installed. Docker has no command that writes a layout.
const ENGINES: [&str; 3] = ["buildah", "podman", "docker"];

#[derive(Debug, PartialEq, Eq)]
struct ImageBuild {
    architecture: String,
    profile: String,
    programs: Option<PathBuf>,
    /// Directory with `vmlinuz` and `initramfs` of the guest kernel.
    kernel: Option<PathBuf>,
    /// Build arguments and other arguments of the engine's build.
    more: Vec<String>,
}

impl Default for ImageBuild {
    fn default() -> Self {
        let (architecture, profile) = ("amd64".into(), DIST.into());
        Self { architecture, profile, programs: None, kernel: None, more: Vec::new() }
    }
}

fn parse(arguments: &[String]) -> anyhow::Result<ImageBuild> {
    let mut wanted = ImageBuild::default();
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = |choices: &[&str]| {
            let value = words.next().with_context(|| format!("{flag} needs a value"))?;
            let good = choices.is_empty() || choices.contains(&value.as_str());
            ensure!(good, "{value:?} is not valid for {flag}; use {}", choices.join(" or "));
            Ok(value.clone())
        };
        match flag.as_str() {
            "--arch" => wanted.architecture = value(&["amd64", "arm64"])?,
            "--profile" => wanted.profile = value(&[DIST, "quick"])?,
            "--programs" => wanted.programs = Some(value(&[])?.into()),
            "--kernel" => wanted.kernel = Some(value(&[])?.into()),
            // The engine gets the rest as it is, such as --build-arg BASE=REF.
            "--" => wanted.more.extend(words.by_ref().cloned()),
            other => bail!(
                "unknown flag {other:?}; there are --arch, --profile, --programs, --kernel, and -- before arguments of the engine"
            ),
        }
    }
    Ok(wanted)
}

/// Makes both images in `<target>/images/<architecture>`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let wanted = parse(arguments)?;
    let engine = ENGINES.iter().find(|engine| installed(engine));
    let engine = *engine.with_context(|| format!("install one of {}", ENGINES.join(", ")))?;
    let target = target(root)?;
    let context = target.join("tmp/images").join(&wanted.architecture);
    let time = commit::time(root)?;
    if !prepare(root, &target, &wanted, &context, &time)? {
        return Ok(false);
    }
    let layout = target.join("images").join(&wanted.architecture);
    if engine != "docker" {
        let _ = std::fs::remove_dir_all(&layout);
        std::fs::create_dir_all(&layout)?;
    }
    for name in IMAGES {
        let reference = format!("{name}:{VERSION}");
        build(root, engine, &wanted, &context, name, &time)?;
        if engine == "docker" {
            println!("{reference} is in docker's store; docker tag and docker push bring it to a registry");
        } else {
            let to = format!("oci:{}:{reference}", layout.display());
            call(Command::new(engine).args(["push", &format!("localhost/{reference}"), &to]))?;
            println!("{reference} is in {}", layout.display());
        }
    }
    Ok(true)
}

/// Fills the context: programs, what they are made of, the kernel, and the script of the Containerfiles.
fn prepare(
    root: &Path,
    target: &Path,
    wanted: &ImageBuild,
    context: &Path,
    time: &str,
) -> anyhow::Result<bool> {
    let _ = std::fs::remove_dir_all(context);
    std::fs::create_dir_all(context.join("kernel"))?;
    match &wanted.programs {
        Some(programs) => {
            for name in ["neond", "neonvm-runner", "neonvm-guest"] {
                let from = programs.join(name);
                std::fs::copy(&from, context.join(name))
                    .with_context(|| format!("cannot copy {}", from.display()))?;
            }
        }
        None => {
            let triple = match wanted.architecture.as_str() {
                "arm64" => "aarch64-unknown-linux-gnu",
                _ => "x86_64-unknown-linux-gnu",
            };
            if !guest::build(root, target, triple)? || !shipped::build(root, target, triple, &wanted.profile)?
            {
                return Ok(false);
            }
            for (profile, program) in
                [(&*wanted.profile, "neond"), (&wanted.profile, "neonvm-runner"), ("guest", "neonvm-guest")]
            {
                strip(&target.join(triple).join(profile).join(program), context, Strip::Debug)?;
            }
        }
    }
    if !sbom::run(root, context, time)? {
        return Ok(false);
    }
    let kernel = match &wanted.kernel {
        Some(kernel) => kernel.clone(),
        None if wanted.architecture == "amd64" => {
            kernel::for_images(root, target, &context.join("neonvm-guest"))?
        }
        None => bail!(
            "kernels are fetched for amd64 only; give a directory with vmlinuz and initramfs by --kernel"
        ),
    };
    // The ELF kernel starts faster than the bzImage; a kernel from source needs no initramfs.
    let first = |names: [&str; 2]| names.map(|name| kernel.join(name)).into_iter().find(|path| path.exists());
    let image = first(["vmlinux", "vmlinuz"]);
    let image = image.with_context(|| format!("{} has no vmlinux and no vmlinuz", kernel.display()))?;
    std::fs::copy(image, context.join("kernel/vmlinuz"))?;
    if let Some(initramfs) = first(["initramfs", "initramfs.cpio"]) {
        std::fs::copy(initramfs, context.join("kernel/initramfs"))?;
    }
    std::fs::copy(root.join("deploy/images/packages.sh"), context.join("packages.sh"))?;
    Ok(true)
}

fn build(
    root: &Path,
    engine: &str,
    wanted: &ImageBuild,
    context: &Path,
    name: &str,
    time: &str,
) -> anyhow::Result<()> {
    let dirty = if commit::has_changes(root)? { "-dirty" } else { "" };
    let revision = format!("{}{dirty}", commit::git(root, &["rev-parse", "HEAD"])?);
    let qemu = if wanted.architecture == "arm64" { "qemu-system-arm" } else { "qemu-system-x86" };
    let mut command = Command::new(engine);
    command.args(["build", "--tag", &format!("{name}:{VERSION}")]);
    command.args(["--platform", &format!("linux/{}", wanted.architecture)]);
    command.args(["--build-arg", &format!("SOURCE_DATE_EPOCH={time}")]);
    if name == "neonvm-runner" {
        command.args(["--build-arg", &format!("QEMU={qemu}")]);
    }
    // All files of the layers get this time; docker's builder takes it from the build argument.
    if engine != "docker" {
        command.args(["--timestamp", time]);
    }
    for (label, value) in [("version", VERSION), ("revision", &revision), ("source", &commit::source(root))] {
        if !value.is_empty() {
            command.args(["--label", &format!("org.opencontainers.image.{label}={value}")]);
        }
    }
    command.args(&wanted.more).arg("--file");
    call(command.arg(root.join("deploy/images").join(format!("{name}.Containerfile"))).arg(context))
}

fn call(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{program} failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read() {
        let read = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words).map_err(|error| error.to_string())
        };
        assert_eq!(read(""), Ok(ImageBuild::default()));
        let wanted = read("--arch arm64 --profile quick --programs p --kernel k -- --pull=never").unwrap();
        assert_eq!((wanted.architecture.as_str(), wanted.profile.as_str()), ("arm64", "quick"));
        assert_eq!((wanted.programs, wanted.kernel), (Some("p".into()), Some("k".into())));
        assert_eq!(wanted.more, ["--pull=never"]);
        assert_eq!(
            read("--arch sparc").unwrap_err(),
            "\"sparc\" is not valid for --arch; use amd64 or arm64"
        );
        assert_eq!(read("--kernel").unwrap_err(), "--kernel needs a value");
        assert!(read("--fast").unwrap_err().starts_with("unknown flag \"--fast\""));
    }
}
