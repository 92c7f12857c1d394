//! A distribution's cloud kernel: downloaded with this host's own package sources or from a mirror of Debian, unpacked so
//! that it starts quickly, with an initramfs of a few megabytes. Ready in seconds, and what a fresh host uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::config::{self, Requested, RequestedOptions};
use crate::error::Doing as _;
use crate::mirror::{self, Pinned};
use crate::module::{EARLY, Modules, NEEDED, WANTED};
use crate::source::download;
use crate::store::{self, Kernel, Manifest, Store};
use crate::{Error, Progress, initramfs, vmlinux};

/// The package that always depends on the newest cloud kernel.
const META_PACKAGE: &str = "linux-image-cloud-amd64";
/// What a kernel must have, built in or as a module, to run a VM.
const REQUIRED: [&str; 14] = [
    "CONFIG_VIRTIO_PCI",
    "CONFIG_VIRTIO_BLK",
    "CONFIG_VIRTIO_NET",
    "CONFIG_VIRTIO_CONSOLE",
    "CONFIG_VIRTIO_MEM",
    "CONFIG_EXT4_FS",
    "CONFIG_ISO9660_FS",
    "CONFIG_DEVTMPFS",
    "CONFIG_INPUT_EVDEV",
    "CONFIG_ACPI_BUTTON",
    "CONFIG_HOTPLUG_CPU",
    "CONFIG_MEMORY_HOTPLUG",
    "CONFIG_CGROUPS",
    "CONFIG_PSI",
];

/// Where a kernel comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The newest of this host's own package sources, if apt is there and knows one; otherwise the first
    /// [pinned](mirror::PINNED) one.
    Any,
    /// A [pinned](mirror::PINNED) one.
    Mirror {
        /// The mirror; [`mirror::DEFAULT`] if none.
        url: Option<String>,
        /// Its version or the beginning of it; the first one if none.
        version: Option<String>,
    },
    File {
        path: PathBuf,
        /// The SHA-256 that it must have, in hexadecimal.
        sha256: Option<String>,
    },
}

#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The guest program, statically linked; it is the initramfs' `/init`.
    pub guest: &'a Path,
    /// Where the kernel comes from.
    pub source: Source,
    /// Modules to load besides the usual ones; each must exist.
    pub modules: Vec<String>,
    /// Name in the store; the version if none.
    pub name: Option<String>,
    /// Whether it becomes the default.
    pub default: bool,
}

/// Fetches a kernel and stores it.
///
/// # Errors
/// If the package cannot be had, is not a kernel, or lacks what a VM needs.
pub fn fetch(options: &Options<'_>, store: &Store, progress: &dyn Progress) -> Result<Kernel, Error> {
    let guest = std::fs::read(options.guest).doing("read", options.guest)?;
    let workshop = store.workshop()?;
    let work = store.workshop()?;
    let package = package(&options.source, work.path(), progress)?;
    progress.begin("unpack", "");
    let tree = work.path().join("tree");
    crate::package::unpack(&package, &tree)?;
    let version = version_of(&tree)?;
    progress.end(&version);
    let config_path = tree.join("boot").join(format!("config-{version}"));
    let config = std::fs::read_to_string(&config_path).doing("read", &config_path)?;
    check(&config)?;
    let image_path = tree.join("boot").join(format!("vmlinuz-{version}"));
    let image = std::fs::read(&image_path).doing("read", &image_path)?;
    let write = |name: &str, bytes: &[u8]| {
        let path = workshop.path().join(name);
        std::fs::write(&path, bytes).doing("write", &path)
    };
    write(store::VMLINUZ, &image)?;
    write(store::CONFIG, config.as_bytes())?;
    let elf = vmlinux::unpack(&image)?;
    if vmlinux::has_pvh_entry(&elf) {
        write(store::VMLINUX, &elf)?;
    } else {
        progress.note("this kernel has no PVH entry: it starts from its bzImage, which is slower");
    }
    progress.begin("initramfs", "");
    let count = pack(&tree, &version, &guest, &options.modules, &workshop.path().join(store::INITRAMFS))?;
    progress.end(&format!("{count} modules"));
    let manifest = Manifest {
        name: options.name.clone().unwrap_or_else(|| version.clone()),
        version,
        origin: package.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        built: false,
        files: BTreeMap::new(),
    };
    store.put(workshop, manifest, options.default)
}

fn package(source: &Source, work: &Path, progress: &dyn Progress) -> Result<PathBuf, Error> {
    let (url, version) = match source {
        Source::File { path, sha256 } => {
            if let Some(sha256) = sha256 {
                mirror::check(&path.display().to_string(), path, sha256)?;
            }
            return Ok(path.clone());
        }
        Source::Any => match newest_of_apt() {
            Some(name) => {
                progress.begin("download", &name);
                let package = download(&name, work, progress)?;
                progress.end(&name);
                return Ok(package);
            }
            None => (None, None),
        },
        Source::Mirror { url, version } => (url.as_deref(), version.as_deref()),
    };
    let kernel = Pinned::of_version(version)?;
    let path = work.join(kernel.file());
    mirror::download(url.unwrap_or(mirror::DEFAULT), &kernel, &path, progress)?;
    Ok(path)
}

/// The newest cloud kernel of this host's package sources: `None` on distributions that have no apt, or none of that name.
fn newest_of_apt() -> Option<String> {
    let asked = Command::new("apt-cache").args(["depends", "--important", META_PACKAGE]).output().ok()?;
    let text = String::from_utf8_lossy(&asked.stdout);
    text.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned)
}

fn version_of(tree: &Path) -> Result<String, Error> {
    let boot = tree.join("boot");
    let entries = std::fs::read_dir(&boot)
        .map_err(|_| Error::malformed("the package", "it holds no /boot: it is not a kernel image"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut versions = names.filter_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned));
    versions.next().ok_or_else(|| Error::malformed("the package", "it holds no kernel image"))
}

/// Every option that a VM cannot do without.
fn check(config: &str) -> Result<(), Error> {
    let required = || Requested { value: config::Value::Yes, from: "needed by every VM".to_owned() };
    let options: RequestedOptions = REQUIRED.iter().map(|&option| (option.to_owned(), required())).collect();
    let dropped = config::dropped(&options, config, true);
    if dropped.is_empty() {
        return Ok(());
    }
    Err(Error::Dropped { options: dropped.iter().map(ToString::to_string).collect() })
}

/// Writes the initramfs; returns how many modules it holds.
fn pack(tree: &Path, version: &str, guest: &[u8], more: &[String], to: &Path) -> Result<usize, Error> {
    // Debian is moving /lib to /usr/lib.
    let candidates = [tree.join("lib/modules"), tree.join("usr/lib/modules")];
    let directory = candidates.iter().map(|base| base.join(version)).find(|path| path.is_dir());
    let directory = directory.ok_or_else(|| Error::malformed("the package", "it holds no modules"))?;
    let modules = Modules::of_directory(&directory)?;
    let early = EARLY.into_iter().filter(|name| modules.has(name));
    let first = modules.order(&NEEDED.into_iter().chain(early).collect::<Vec<_>>(), &[])?;
    let mut wanted: Vec<&str> = WANTED.into_iter().filter(|name| modules.has(name)).collect();
    wanted.extend(more.iter().map(String::as_str));
    let later = modules.order(&wanted, &first)?;
    let file = std::fs::File::create(to).doing("create", to)?;
    let content = initramfs::Content { guest, first: &first, later: &later };
    initramfs::write(&content, std::io::BufWriter::new(file))?;
    Ok(first.len() + later.len())
}

#[cfg(test)]
mod tests;
