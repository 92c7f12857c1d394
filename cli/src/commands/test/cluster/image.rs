//! Which image the VM boots: the one that is named, `neonvm-test` of a registry, or on a local cluster a small one that is built.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use neonvm_deploy::Choice;
use neonvm_kernel::Progress as _;
use tokio::process::Command;

use crate::args::cluster::Cluster;
use crate::commands::checks::read::installed;
use crate::commands::install::apply::record;
use crate::connect::Connection;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::instance;
use crate::render::Reporter;
use crate::settings::Settings;

/// Name of the image, in a registry and in the store of local clusters.
const NAME: &str = concat!("neonvm-test:", env!("CARGO_PKG_VERSION"));
/// Makes the root directory of a few megabytes; needs apt-get and dpkg-deb, and no privileges.
const SCRIPT: &str = include_str!("../../../../../examples/busybox/make-root.sh");
/// What runs in the guest: nothing that takes CPU.
const WORKLOAD: [&str; 3] = ["/bin/sh", "-c", "exec sleep 1000000000"];

pub(super) async fn choose(
    env: &Env,
    settings: &Settings,
    connection: &Connection,
    args: &Cluster,
    reporter: &Reporter,
) -> Result<String> {
    if let Some(image) = &args.image {
        return Ok(image.clone());
    }
    if let Some(registry) = &args.registry {
        return in_registry(registry, args, reporter).await;
    }
    if instance::of_server(env, settings, &connection.server).is_some() {
        if args.push_image {
            return Err(Error::new(
                Code::Usage,
                "--push-image requires --registry; a local cluster needs no registry",
            )
            .hint("omit --push-image, or set the registry with --registry"));
        }
        reporter.begin("image", NAME);
        let made = built().await?;
        reporter.end(&format!("{NAME}: {made}"));
        return Ok(NAME.to_owned());
    }
    if let Some(registry) = registry(connection).await? {
        return in_registry(&registry, args, reporter).await;
    }
    Err(Error::new(Code::Usage, "no image is set, and the services were not installed from a registry").hint(
        "set a VM image that nodes can pull: --image; or a registry that contains neonvm-test: --registry",
    ))
}

/// The image of a registry, which is built and pushed first if that is asked for.
async fn in_registry(registry: &str, args: &Cluster, reporter: &Reporter) -> Result<String> {
    let image = format!("{}/{NAME}", registry.trim_end_matches('/'));
    if args.push_image {
        reporter.begin("image", &image);
        build(&image, if args.insecure { &["--push", "--insecure"] } else { &["--push"] }).await?;
        reporter.end(&format!("{image}: built and pushed"));
    }
    Ok(image)
}

pub(super) fn how_to_push(image: &str) -> String {
    let registry = image.strip_suffix(NAME).map(|registry| registry.trim_end_matches('/'));
    registry.map_or_else(
        || "push it, or use another one with --image".to_owned(),
        |registry| {
            format!(
                "build and push it: neonctl test cluster --registry {registry} --push-image; or use another one with --image"
            )
        },
    )
}

/// The registry that was chosen at the installation; none if none was recorded, or it may not be read.
async fn registry(connection: &Connection) -> Result<Option<String>> {
    let namespace = installed(connection, None).await?;
    let found = match record(connection, &namespace).await {
        Err(error) if error.code == Code::Denied => return Ok(None),
        found => found?,
    };
    let Some(found) = found else { return Ok(None) };
    let mut choice = Choice::default();
    let values = choice.file(&found.values).and_then(|()| choice.values());
    Ok(values.ok().map(|values| values.image.registry).filter(|registry| !registry.is_empty()))
}

/// Builds the image into the store of this computer, unless it has it.
async fn built() -> Result<&'static str> {
    if run(&["image", "inspect", NAME]).await.is_ok() {
        return Ok("is in the store");
    }
    build(NAME, &[]).await?;
    Ok("built")
}

/// Builds the image under a name, with more flags of `vm build`.
async fn build(name: &str, flags: &[&str]) -> Result<()> {
    let directory = tempfile::tempdir()
        .map_err(|error| Error::new(Code::Failed, "cannot create a directory").cause(reason(&error)))?;
    let root = directory.path().join("root");
    root_directory(&root).await?;
    let root = root.display().to_string();
    let build = ["vm", "build", "--from", &root, "--owner", "root", "-t", name];
    run(&[&build[..], flags, &["--"], &WORKLOAD[..]].concat())
        .await
        .map_err(|error| Error { message: format!("cannot build {name}"), ..error })
}

async fn run(arguments: &[&str]) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(Code::Failed, "cannot run neonctl").cause(reason(&error));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    ended(command.args(arguments)).await
}

async fn root_directory(root: &Path) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::new(Code::Failed, "cannot write a script").cause(reason(&error));
    let mut script = tempfile::NamedTempFile::new().map_err(failed)?;
    script.write_all(SCRIPT.as_bytes()).map_err(failed)?;
    ended(Command::new("sh").arg(script.path()).arg(root)).await.map_err(|error| {
        Error { message: "cannot create a small root directory".to_owned(), ..error }
            .hint("this requires apt-get and dpkg-deb; without them, set an image with --image")
    })
}

async fn ended(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| Error::new(Code::Failed, "cannot run it").cause(reason(&error)))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(Code::Failed, "it failed").cause(complaint(&String::from_utf8_lossy(&output.stderr))))
}

/// Why a command failed, from what it printed: the error with what follows it, as neonctl prints it, or else the last line.
fn complaint(errors: &str) -> String {
    let lines: Vec<&str> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.iter().position(|line| line.starts_with("error: ")) {
        Some(at) => lines.get(at..).unwrap_or_default().join("; ").replacen("error: ", "", 1),
        None => lines.last().map_or_else(|| "it printed nothing".to_owned(), |line| (*line).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_command_is_found_before_its_hint() {
        let printed = "progress\nerror: cannot find the program x\n  hint: put x next to neonctl\n\n";
        assert_eq!(complaint(printed), "cannot find the program x; hint: put x next to neonctl");
        assert_eq!(complaint("a\nE: no package\n"), "E: no package");
        assert_eq!(complaint(""), "it printed nothing");
    }
}
