//! Which image the VM boots: the one that is named, `neonvm-test` of a registry, or on a local cluster a small one that is built.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use neonvm_deploy::Choice;
use neonvm_kernel::Progress as _;
use tokio::process::Command;

use crate::args::test::Cluster;
use crate::commands::health::installed;
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

/// The image.
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
        return Ok(format!("{}/{NAME}", registry.trim_end_matches('/')));
    }
    if instance::of_server(env, settings, &connection.server).is_some() {
        reporter.begin("image", NAME);
        let made = built().await?;
        reporter.end(&format!("{NAME}: {made}"));
        return Ok(NAME.to_owned());
    }
    if let Some(registry) = registry(connection).await? {
        return Ok(format!("{registry}/{NAME}"));
    }
    Err(Error::new(Code::Usage, "which image? the services were not installed from a registry").hint(
        "name the image of a VM that nodes can pull: --image; or a registry that has neonvm-test: --registry",
    ))
}

/// How the image comes into its registry.
pub(super) fn how_to_push(image: &str) -> String {
    format!(
        "push it from a clone of the project: examples/busybox/make-root.sh root; neonctl vm build --from root --owner root \
         -t {image} --push -- /bin/sh -c 'exec sleep 1000000000'; or name another one with --image"
    )
}

/// The registry that was chosen at the installation; none if nobody wrote one down, or it may not be read.
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
    let directory = tempfile::tempdir()
        .map_err(|error| Error::new(Code::Failed, "cannot make a directory").cause(reason(&error)))?;
    let root = directory.path().join("root");
    root_directory(&root).await?;
    let root = root.display().to_string();
    let build = ["vm", "build", "--from", &root, "--owner", "root", "-t", NAME, "--"];
    run(&[&build[..], &WORKLOAD[..]].concat())
        .await
        .map_err(|error| Error { message: format!("cannot build {NAME}"), ..error })?;
    Ok("built")
}

/// Runs this program with other arguments.
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
        Error { message: "cannot make a small root directory".to_owned(), ..error }
            .hint("it needs apt-get and dpkg-deb; without them name an image with --image")
    })
}

async fn ended(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| Error::new(Code::Failed, "cannot run it").cause(reason(&error)))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let line =
        errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed").trim().to_owned();
    Err(Error::new(Code::Failed, "it failed").cause(line))
}
