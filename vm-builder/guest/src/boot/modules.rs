//! Loading kernel modules in the order the builder of the initramfs found.

use std::fs::File;
use std::path::Path;

use rustix::io::Errno;

/// Loads each file named in `order`, one a line, below the directory. Returns what failed; what is there already, as a
/// module or within the kernel, is no failure.
#[must_use]
pub fn load(directory: &Path) -> Vec<String> {
    let order = std::fs::read_to_string(directory.join("order")).unwrap_or_default();
    order
        .lines()
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.starts_with('#') && !name.contains(".."))
        .filter_map(|name| {
            load_one(&directory.join(name)).err().map(|error| format!("module {name}: {error}"))
        })
        .collect()
}

fn load_one(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    match rustix::system::finit_module(&file, c"", 0) {
        Ok(()) | Err(Errno::EXIST | Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_is_named_and_no_name_climbs() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("order"), "# x\n\ngone.ko\n../etc/passwd\n").unwrap();
        let problems = load(directory.path());
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("module gone.ko: "));
        assert!(load(Path::new("/nonexistent")).is_empty());
    }
}
