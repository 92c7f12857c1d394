//! Disks and kernels out of images, once for each digest, shared by all pods of the host.
//!
//! ```text
//! sha256-<digest>/disk.qcow2     read-only; appears whole
//! file-<key>/disk.qcow2          a link to a file that was named directly
//! users/<directory>/<user>       who uses it; without one it may be removed
//! .lock                          held, shared, while a user is added; exclusively while unused ones are removed
//! ```

mod collect;
mod load;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use neonvm_builder::source::Logins;
use parking_lot::Mutex;

use crate::ImageConfig;
use crate::events::Events;
use crate::files;
use crate::objects::{Kind, Objects};
use crate::problem::Problem;

/// Names of the files that are taken out of images.
const DISK: &str = "disk.qcow2";
const KERNEL: &str = "vmlinuz";
const PULL: &str = "ErrImagePull";

/// An image that a pod wants.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) reference: String,
    /// `Always`, `IfNotPresent`, `Never`.
    pub(crate) policy: Option<String>,
    pub(crate) namespace: String,
    /// Names of secrets with logins.
    pub(crate) secrets: Vec<String>,
    pub(crate) user: String,
}

#[derive(Debug)]
pub(crate) struct Images {
    config: ImageConfig,
    events: Events,
    /// One fetch of an image at a time; the others wait for it.
    flights: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The logins in the data of a secret, in the format of Docker's `config.json`; or why there are none.
fn login_document(data: Option<&BTreeMap<String, Vec<u8>>>) -> Result<Vec<u8>, String> {
    let Some(data) = data else { return Err("does not exist".to_owned()) };
    if let Some(document) = data.get(".dockerconfigjson") {
        return Ok(document.clone());
    }
    // The older format has the registries themselves.
    match data.get(".dockercfg") {
        Some(registries) => Ok([&b"{\"auths\":"[..], registries, b"}"].concat()),
        None => Err("has neither .dockerconfigjson nor .dockercfg, as a secret of type kubernetes.io/dockerconfigjson has".to_owned()),
    }
}

/// A problem of the file system, in words.
fn io_problem(path: &Path, error: &io::Error) -> Problem {
    Problem::new(PULL, format!("{}: {error}", path.display()))
}

impl Images {
    pub(crate) fn new(config: ImageConfig, events: Events) -> Self {
        Self { config, events, flights: Mutex::default() }
    }

    /// Directory with the image's disk or kernel, fetched if it is not there. It stays until its user is
    /// [released](Self::release).
    pub(crate) async fn ensure(
        &self,
        request: &Request,
        pod: &Pod,
        objects: &Objects,
    ) -> Result<PathBuf, Problem> {
        if let Some(path) = request.reference.strip_prefix("file://") {
            let directory = self.link_file(Path::new(path))?;
            return self.used(&directory, &request.user);
        }
        let flight = Arc::clone(self.flights.lock().entry(request.reference.clone()).or_default());
        let held = flight.lock().await;
        let fetched = self.fetch(request, pod, objects).await;
        drop(held);
        self.flights.lock().retain(|_, flight| Arc::strong_count(flight) > 1);
        let directory = fetched?;
        self.used(&directory, &request.user)
    }

    async fn fetch(&self, request: &Request, pod: &Pod, objects: &Objects) -> Result<PathBuf, Problem> {
        let found = load::find(&self.config, request)?;
        if let Some(present) = found.present {
            return Ok(present);
        }
        let from = request.reference.clone();
        if found.is_remote {
            self.events.normal(pod, "Pulling", format!("Pulling image {from:?}"));
        }
        let logins = self.logins(request, objects).await?;
        let began = std::time::Instant::now();
        let loaded = load::fetch(self.config.clone(), found, logins).await;
        match loaded {
            Ok((directory, bytes)) => {
                let note = format!(
                    "Successfully pulled image {from:?} in {} ms ({} MiB)",
                    began.elapsed().as_millis(),
                    bytes >> 20
                );
                self.events.normal(pod, "Pulled", note);
                Ok(directory)
            }
            Err(problem) => {
                self.events.warning(
                    pod,
                    "Failed",
                    format!("Failed to pull image {from:?}: {}", problem.message),
                );
                Err(problem)
            }
        }
    }

    /// Logins of the pod's secrets. As with kubelets a secret that is missing is no obstacle for an image that needs no login; if it needs
    /// one, the error names it.
    async fn logins(&self, request: &Request, objects: &Objects) -> Result<Vec<Logins>, Problem> {
        let mut logins = Vec::new();
        for name in &request.secrets {
            let secret = objects.hold(Kind::Secret, &request.namespace, name);
            let data = secret.get().await.map_err(|error| Problem::new(PULL, error))?;
            logins.push(Logins {
                name: format!("pull secret {name:?}"),
                content: login_document(data.as_deref()),
            });
        }
        Ok(logins)
    }

    /// A directory with a file that was named directly. It is copied only if users of pods cannot read it: it must stay as it is while a
    /// machine uses it (one that is replaced by renaming does).
    fn link_file(&self, path: &Path) -> Result<PathBuf, Problem> {
        use std::os::unix::fs::MetadataExt as _;
        let wrong = |error: &io::Error| io_problem(path, error);
        if !path.is_absolute() {
            return Err(Problem::last(
                "InvalidImageName",
                format!("file://{} is not absolute", path.display()),
            ));
        }
        let path = &self.named_file(path)?;
        let metadata = fs::metadata(path).map_err(|error| wrong(&error))?;
        if !metadata.is_file() {
            return Err(Problem::new(PULL, format!("{} is not a file", path.display())));
        }
        let key =
            format!("{}:{}:{}:{}", metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime_nsec());
        let digest = crate::naming::digest(&format!("{}:{key}", path.display()));
        let key: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let directory = self.config.directory.join(format!("file-{key}"));
        let name = if path.file_name().is_some_and(|name| name == KERNEL) { KERNEL } else { DISK };
        let make = || -> io::Result<()> {
            if directory.join(name).exists() {
                return Ok(());
            }
            files::remove(&directory)?;
            let next = files::beside(&directory);
            files::directory(&next, 0o700)?;
            let is_closed = metadata.mode() & 0o004 == 0 && crate::sys::can_make_roots();
            // A second name keeps the content when the first is given to another file.
            if is_closed {
                // Users of pods cannot read it.
                fs::copy(path, next.join(name))?;
                fs::set_permissions(next.join(name), fs::Permissions::from_mode(0o444))?;
            } else if fs::hard_link(path, next.join(name)).is_err() {
                std::os::unix::fs::symlink(path, next.join(name))?;
            }
            match fs::rename(&next, &directory) {
                Err(_) if directory.join(name).exists() => files::remove(&next),
                done => done,
            }
        };
        make().map_err(|error| wrong(&error))?;
        Ok(directory)
    }

    /// The file itself, if it is below a directory that the administrator has named. Whether another file exists is not shown.
    fn named_file(&self, path: &Path) -> Result<PathBuf, Problem> {
        let real = fs::canonicalize(path).ok();
        let below = |real: &Path| {
            let named = self.config.files.iter().filter_map(|directory| fs::canonicalize(directory).ok());
            named.into_iter().any(|directory| real.starts_with(directory))
        };
        let stated = self.config.files.iter().any(|directory| path.starts_with(directory));
        match real {
            Some(real) if below(&real) => Ok(real),
            None if stated && path.components().all(|part| part != Component::ParentDir) => {
                Err(Problem::new(PULL, format!("{} is not a file", path.display())))
            }
            _ => Err(Problem::last(
                "InvalidImageName",
                format!(
                    "file://{} is below no directory of files that this node offers; the administrator of the cluster can name one with \
                     neonctl local up --image-files DIR",
                    path.display()
                ),
            )),
        }
    }

    fn lock(&self, exclusive: bool) -> io::Result<File> {
        fs::create_dir_all(&self.config.directory)?;
        let path = self.config.directory.join(".lock");
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        files::lock(&file, exclusive)?;
        Ok(file)
    }

    fn users(&self) -> PathBuf {
        self.config.directory.join("users")
    }

    fn used(&self, directory: &Path, user: &str) -> Result<PathBuf, Problem> {
        let name = directory.file_name().unwrap_or_default();
        let note = || -> io::Result<()> {
            let _adding = self.lock(false)?;
            let users = self.users().join(name);
            fs::create_dir_all(&users)?;
            File::create(users.join(user))?;
            // The user of the pod enters it; it is below a directory that other users do not.
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
            // A directory's age is when it was last used.
            let _ = File::open(directory).and_then(|file| file.set_modified(std::time::SystemTime::now()));
            Ok(())
        };
        match note() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => {
                Err(Problem::new(PULL, "the image was removed just now"))
            }
            Ok(()) => Ok(directory.to_path_buf()),
            Err(error) => Err(io_problem(directory, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_both_types_are_read_and_others_named() {
        let of =
            |key: &str, text: &str| login_document(Some(&BTreeMap::from([(key.to_owned(), text.into())])));
        assert_eq!(of(".dockerconfigjson", "{}"), Ok(b"{}".to_vec()));
        assert_eq!(of(".dockercfg", "{\"r\":{}}"), Ok(b"{\"auths\":{\"r\":{}}}".to_vec()));
        assert_eq!(login_document(None), Err("does not exist".to_owned()));
        assert!(of("password", "x").unwrap_err().contains("kubernetes.io/dockerconfigjson"));
    }
}
