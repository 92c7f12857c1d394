//! Finding and fetching images.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use neonvm_builder::reference::{Digest, Reference};
use neonvm_builder::source::{Error, Logins, Options, Pull, Quiet, Source, load};
use neonvm_builder::store::Store;
use neonvm_builder::{content, export};
use neonvm_kit::error::causes;

use super::{DISK, KERNEL, PULL, Request, io_problem};
use crate::problem::Problem;
use crate::{ImageConfig, files};

/// Largest kernel, in bytes.
const KERNEL_LIMIT: usize = 256 << 20;

/// Where an image is.
pub(super) struct Found {
    source: Source,
    pull: Pull,
    pub(super) is_remote: bool,
    /// It was taken out before.
    pub(super) present: Option<PathBuf>,
}

fn place(config: &ImageConfig, digest: Digest) -> PathBuf {
    config.directory.join(format!("sha256-{}", digest.hex()))
}

/// Finds an image in the local store; otherwise it is a registry's.
pub(super) fn find(config: &ImageConfig, request: &Request) -> Result<Found, Problem> {
    let text = &request.reference;
    let reference: Reference =
        text.parse().map_err(|error| Problem::last("InvalidImageName", format!("{text:?}: {error}")))?;
    if let Some(root) = config.store.as_ref().filter(|root| root.join("oci-layout").exists())
        && let Ok(image) = Store::open(root).and_then(|store| store.get(text))
    {
        let place = place(config, image.digest());
        return Ok(Found {
            // The store supports whole names only.
            source: Source::OciLayout { path: root.clone(), name: Some(reference.to_string()) },
            pull: Pull::Never,
            is_remote: false,
            present: place.exists().then_some(place),
        });
    }
    let by_digest = reference.digest().map(|digest| place(config, digest)).filter(|place| place.exists());
    let is_latest = reference.digest().is_none() && reference.tag().is_none_or(|tag| tag == "latest");
    let pull = match request.policy.as_deref() {
        Some("Always") => Pull::Always,
        Some("Never") => Pull::Never,
        Some("IfNotPresent") => Pull::Missing,
        _ if is_latest => Pull::Always,
        _ => Pull::Missing,
    };
    let present = by_digest.filter(|_| pull != Pull::Always);
    Ok(Found { source: Source::Registry(reference), pull, is_remote: true, present })
}

/// Fetches an image and takes its files out. The directory, and the bytes of its files.
pub(super) async fn fetch(
    config: ImageConfig,
    found: Found,
    logins: Vec<Logins>,
) -> Result<(PathBuf, u64), Problem> {
    let runtime = tokio::runtime::Handle::current();
    // Reading archives blocks, for seconds.
    let work = move || {
        let mut options = Options::new(&config.cache);
        options.pull = found.pull;
        options.network.insecure = config.insecure;
        options.network.ca_file.clone_from(&config.ca_file);
        options.network.logins = logins;
        let own = |name: &str| std::env::var(name).ok();
        options.network.auth_files = neonvm_builder::registry::auth_files(&own);
        // Their paths are nothing for the author of a pod.
        options.network.files_name = Some("a login file of the node".to_owned());
        let loaded = runtime.block_on(load(&found.source, &options, &Quiet)).map_err(|error| {
            let hint = hint(&error).map(|hint| format!(" ({hint})")).unwrap_or_default();
            let never = found.pull == Pull::Never && found.is_remote;
            Problem::new(if never { "ErrImageNeverPull" } else { PULL }, format!("{}{hint}", causes(&error)))
        })?;
        take_out(&config, &loaded)
    };
    let failed = |error| Problem::new(PULL, format!("fetching failed: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

/// What the author of a pod can do about an error.
fn hint(error: &Error) -> Option<String> {
    match error {
        Error::Unauthorized { .. } => Some(
            "name a secret of type kubernetes.io/dockerconfigjson with the right login in imagePullSecrets".to_owned(),
        ),
        Error::Tls { .. } => Some(
            "the administrator of the cluster can trust the registry's authority with neonctl local up --registry-ca-file FILE, or allow \
             plain HTTP with --insecure-registries"
                .to_owned(),
        ),
        // The flags of the others are those of neonctl.
        other => other.hint().filter(|hint| !hint.contains("--")),
    }
}

fn take_out(
    config: &ImageConfig,
    loaded: &neonvm_builder::source::Loaded,
) -> Result<(PathBuf, u64), Problem> {
    let place = place(config, loaded.digest);
    if place.exists() {
        return Ok((place, 0));
    }
    let next = files::beside(&place);
    let done = fill(&next, loaded).and_then(|bytes| {
        let renamed = fs::rename(&next, &place);
        // Another node may have been faster with the same content.
        if renamed.is_err() && place.exists() {
            Ok(bytes)
        } else {
            renamed.map(|()| bytes).map_err(|e| io_problem(&place, &e))
        }
    });
    if files::remove(&next).is_err() {
        tracing::warn!(path = %next.display(), "cannot be removed");
    }
    done.map(|bytes| (place, bytes))
}

fn fill(next: &std::path::Path, loaded: &neonvm_builder::source::Loaded) -> Result<u64, Problem> {
    let failed = |error: io::Error| io_problem(next, &error);
    files::directory(next, 0o700).map_err(failed)?;
    let mut bytes = 0;
    if content::find(&loaded.tree, export::DISK_PATH.as_bytes()).is_some() {
        bytes =
            export::export(loaded, &next.join(DISK)).map_err(|error| Problem::new(PULL, causes(&error)))?;
    }
    let kernel =
        content::read(&loaded.tree, loaded.sources.as_ref(), format!("/{KERNEL}").as_bytes(), KERNEL_LIMIT);
    if let Some(kernel) = &kernel {
        fs::write(next.join(KERNEL), kernel).map_err(failed)?;
        bytes += kernel.len() as u64;
    }
    if bytes == 0 {
        let why = format!("image {} holds neither /{DISK} nor /{KERNEL}", loaded.reference);
        return Err(Problem::new("InvalidImage", why));
    }
    for entry in fs::read_dir(next).map_err(failed)?.flatten() {
        fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o444)).map_err(failed)?;
    }
    Ok(bytes)
}
