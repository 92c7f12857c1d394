//! Small guests: a kernel, and one program as the only process.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cpio::newc;

use crate::needs::{Need, kernel, program, target_directory};

/// What QEMU boots.
#[derive(Clone, Debug)]
pub struct SmallGuest {
    /// The kernel, an ELF file.
    pub kernel: PathBuf,
    /// Its initramfs: the modules of the kernel, if it has some, and the program as `/init`.
    pub initramfs: PathBuf,
    /// Whether the kernel has modules, in the initramfs.
    pub has_modules: bool,
}

impl SmallGuest {
    /// A guest whose only process is a C program. `modules.h` beside this crate can be included.
    ///
    /// # Errors
    /// Without a C compiler or a kernel.
    ///
    /// # Panics
    /// If the program does not compile.
    pub fn compile(name: &str, source: &Path) -> Need<Self> {
        Self::compile_for(&kernel()?, name, source)
    }

    /// The same with another kernel than that of the tests, in this directory.
    ///
    /// # Errors
    /// Without a C compiler.
    ///
    /// # Panics
    /// If the program does not compile.
    pub fn compile_for(kernel: &Path, name: &str, source: &Path) -> Need<Self> {
        program("cc")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let binary = directory.path().join("init");
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
        let compiled = Command::new("cc")
            .args(["-O1", "-static", "-s", "-I"])
            .arg(headers)
            .arg("-o")
            .arg(&binary)
            .arg(source)
            .output()
            .expect("cc runs");
        assert!(compiled.status.success(), "cc: {}", String::from_utf8_lossy(&compiled.stderr));
        Ok(Self::of(kernel, name, &fs::read(&binary).expect("what cc has made")))
    }

    /// A guest whose only process is this program.
    ///
    /// # Errors
    /// Without a kernel.
    ///
    /// # Panics
    /// If its initramfs cannot be written to the target directory.
    pub fn with_init(name: &str, init: &[u8]) -> Need<Self> {
        Ok(Self::of(&kernel()?, name, init))
    }

    fn of(kernel: &Path, name: &str, init: &[u8]) -> Self {
        // The first archive brings the modules; of two files with one name the later one counts.
        let mut archive = fs::read(kernel.join("initramfs.cpio")).unwrap_or_default();
        let has_modules = !archive.is_empty();
        archive.extend(root(init));
        let kernel_name = kernel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let initramfs = put(&format!("{name}-{kernel_name}.cpio"), &archive);
        Self { kernel: kernel.join("vmlinux"), initramfs, has_modules }
    }
}

/// Writes a file of the directory for temporary files of tests. Other test processes may use it: it appears as a whole.
fn put(name: &str, content: &[u8]) -> PathBuf {
    let directory = target_directory().join("tmp");
    fs::create_dir_all(&directory).expect("a directory for temporary files");
    let aside = tempfile::NamedTempFile::new_in(&directory).expect("a temporary file");
    fs::write(aside.path(), content).expect("room on the disk");
    // Runners read it as another user than the tests.
    fs::set_permissions(aside.path(), fs::Permissions::from_mode(0o644)).expect("a file of this user");
    let path = directory.join(name);
    aside.persist(&path).expect("a file of its own name");
    path
}

/// An archive with `/init` and the console.
fn root(init: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let entries = [
        ("dev", 0o040_755, &[][..], (0, 0)),
        ("dev/console", 0o020_600, &[][..], (5, 1)),
        ("init", 0o100_755, init, (0, 0)),
    ];
    for (name, mode, content, (major, minor)) in entries {
        let entry = newc::Builder::new(name).mode(mode).rdev_major(major).rdev_minor(minor);
        let size = u32::try_from(content.len()).expect("less than 4 GiB");
        let mut writer = entry.write(&mut bytes, size);
        std::io::Write::write_all(&mut writer, content).expect("memory takes all");
        writer.finish().expect("memory takes all");
    }
    newc::trailer(bytes).expect("memory takes all")
}
