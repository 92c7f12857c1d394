//! Kernel modules: the dependencies of one, and the order in which they can be loaded. No `depmod`: each module lists
//! its dependencies in its `.modinfo`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::error::Doing as _;
use crate::packing::Packing;

/// No module is larger, in bytes.
const LARGEST: u64 = 256 << 20;

/// Modules without which the root disk, the runtime volume, the network, the ports or the power button are missing.
/// Loaded before the root file system is mounted.
pub const NEEDED: [&str; 8] =
    ["virtio_pci", "virtio_blk", "ext4", "isofs", "virtio_net", "virtio_console", "evdev", "button"];

/// Modules that report what may happen early: a kernel panic. Loaded before the root file system is mounted. Those that the kernel does not have are left out.
pub const EARLY: [&str; 1] = ["pvpanic_pci"];

/// Modules that make a VM better; loaded while the workload starts. Those that the kernel does not have are left out.
pub const WANTED: [&str; 24] = [
    "virtio_mem",
    "virtio_balloon",
    "virtio_rng",
    "ptp_kvm",
    "qemu_fw_cfg",
    "quota_v2",
    "overlay",
    "fuse",
    "virtiofs",
    "loop",
    "tun",
    "veth",
    "bridge",
    "br_netfilter",
    "nf_tables",
    "nft_ct",
    "nft_nat",
    "nft_masq",
    "nft_redir",
    "nft_reject_inet",
    "nft_compat",
    "xt_conntrack",
    "xt_addrtype",
    "vsock",
];

#[derive(Clone, Debug, Default)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

/// Module names are written with `-` or with `_`; the kernel treats both as the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn name_of(path: &Path) -> Option<String> {
    let (name, _) = Packing::of_name(path.file_name()?.to_str()?);
    name.strip_suffix(".ko").map(canonical)
}

/// Name of the file of a module without its compression, such as `virtio-pci.ko`.
pub fn plain_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Packing::of_name(&name).0.to_owned()
}

/// The module in a file `NAME.ko`, `NAME.ko.gz`, `NAME.ko.xz` or `NAME.ko.zst`, uncompressed.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = std::fs::File::open(path).doing("read", path)?;
    let unpacked = Packing::of_name(&name).1.unpack(std::io::BufReader::new(file), LARGEST);
    unpacked.map_err(|error| Error::malformed(format!("module {name}"), error.to_string()))
}

impl Modules {
    /// Looks through `lib/modules/VERSION`.
    pub fn of_directory(directory: &Path) -> Result<Self, Error> {
        let mut modules = Self::default();
        let builtin = directory.join("modules.builtin");
        let text = std::fs::read_to_string(&builtin).unwrap_or_default();
        modules.built_in = text.lines().filter_map(|line| name_of(Path::new(line))).collect();
        let mut waiting = vec![directory.to_owned()];
        while let Some(next) = waiting.pop() {
            for entry in std::fs::read_dir(&next).doing("read", &next)? {
                let entry = entry.doing("read", &next)?;
                let kind = entry.file_type().doing("look at", &entry.path())?;
                if kind.is_dir() {
                    waiting.push(entry.path());
                } else if let Some(name) = name_of(&entry.path()) {
                    modules.files.insert(name, entry.path());
                }
            }
        }
        Ok(modules)
    }

    /// Whether a module is there as a file or part of the kernel.
    pub fn has(&self, name: &str) -> bool {
        let name = canonical(name);
        self.files.contains_key(&name) || self.built_in.contains(&name)
    }

    /// The files of `wanted` and of all they depend on, each behind what it needs, without those in `already`.
    pub fn order(&self, wanted: &[&str], already: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
        let mut done: BTreeSet<String> = already.iter().filter_map(|path| name_of(path)).collect();
        let mut order = Vec::new();
        for name in wanted {
            self.visit(&canonical(name), &mut done, &mut order, 0)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        done: &mut BTreeSet<String>,
        order: &mut Vec<PathBuf>,
        depth: usize,
    ) -> Result<(), Error> {
        // Real chains are below ten; a circle must not end in a full stack.
        if depth > 32 || self.built_in.contains(name) || !done.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(path) = self.files.get(name) else {
            return Err(Error::NoModule { name: name.to_owned() });
        };
        for needed in dependencies(&read(path)?) {
            self.visit(&needed, done, order, depth + 1)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

/// The dependencies in a module's own description (`depends=` in `.modinfo`).
pub fn dependencies(module: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    for entry in module.split(|&byte| byte == 0) {
        if let Some(list) = entry.strip_prefix(b"depends=").and_then(|list| std::str::from_utf8(list).ok()) {
            all.extend(list.split(',').filter(|name| !name.is_empty()).map(canonical));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::{FORMS, pack};

    fn modules(directory: &Path, all: &[(&str, &str)], built_in: &str) -> Modules {
        std::fs::create_dir_all(directory.join("kernel/drivers")).unwrap();
        // Each in another form.
        for ((name, depends), (ending, packing)) in all.iter().zip(FORMS.iter().cycle()) {
            let text = format!("\x7fELF\0license=GPL\0depends={depends}\0name=x\0");
            let path = directory.join(format!("kernel/drivers/{name}.ko{ending}"));
            std::fs::write(path, pack(*packing, text.as_bytes())).unwrap();
        }
        std::fs::write(directory.join("modules.builtin"), built_in).unwrap();
        Modules::of_directory(directory).unwrap()
    }

    #[test]
    fn a_module_comes_behind_what_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let all = [
            ("virtio-pci", "virtio,virtio_ring"),
            ("virtio", ""),
            ("virtio_ring", "virtio"),
            ("a", "b"),
            ("b", "a"),
        ];
        let modules = modules(directory.path(), &all, "kernel/fs/ext4/ext4.ko\n");
        let names = |paths: &[PathBuf]| paths.iter().filter_map(|path| name_of(path)).collect::<Vec<_>>();
        let first = modules.order(&["virtio_pci", "ext4"], &[]).unwrap();
        assert_eq!(names(&first), ["virtio", "virtio_ring", "virtio_pci"]);
        assert_eq!(names(&modules.order(&["virtio-ring", "a"], &first).unwrap()), ["b", "a"]);
        let error = modules.order(&["virtio_net"], &[]).unwrap_err().to_string();
        assert_eq!(error, "this kernel has no module virtio_net");
        assert!(modules.has("ext4") && modules.has("virtio_pci") && !modules.has("xfs"));
    }
}
