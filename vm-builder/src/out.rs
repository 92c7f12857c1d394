//! Files that commands write for people, whatever the path that was given is:
//!
//! - nothing, or a regular file: the new file appears when it is whole, in one step, and what was there stays until then;
//! - a link to a regular file: the same happens where the link leads to, and the link stays;
//! - a FIFO or a device: what is whole is written into it;
//! - a link to nothing, or to a descriptor of this process (`/dev/stdout`) that is a regular file: refused, with the remedy.
//!
//! Until the new file is whole it has no name, so that nothing is left whenever and however the process ends. File systems that cannot
//! do that (some overlays and network file systems) get a hidden one.

use std::fs::{File, Permissions};
use std::io::{self, Seek as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

/// How files begin that have a name before they are whole.
const PREFIX: &str = ".neonvm-";
/// Links that are followed one after another: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// A file on its way to its name. Nothing of it is left if it is dropped before.
#[derive(Debug)]
pub struct Output {
    file: File,
    hidden: Option<TempPath>,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// A name without links, and the mode of the file that has it.
    Name(PathBuf, Option<u32>),
    /// A FIFO or a device, open for writing.
    Stream(File),
}

impl Output {
    /// Begins one; its mode is that of the file it replaces, or `mode` without the bits of the umask. A FIFO is waited for until another
    /// process reads from it.
    pub fn begin(path: &Path, mode: u32) -> io::Result<Self> {
        let target = target(path)?;
        let (file, hidden) = match &target {
            Target::Name(name, _) => new_file(parent(name), mode)?,
            Target::Stream(_) => (tempfile::tempfile()?, None),
        };
        Ok(Self { file, hidden, target })
    }

    /// The new file, empty at first.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name, or copies it to where the path leads. Returns it, to be read.
    pub fn finish(self) -> io::Result<File> {
        let Self { mut file, hidden, target } = self;
        match target {
            Target::Name(name, mode) => {
                if let Some(mode) = mode {
                    file.set_permissions(Permissions::from_mode(mode))?;
                }
                file.sync_all()?;
                match (mode, hidden) {
                    (Some(_), hidden) => give_name(&file, hidden, &name)?,
                    // What has appeared there since is not replaced.
                    (None, Some(path)) => path.persist_noclobber(&name).map_err(|error| error.error)?,
                    (None, None) => link(&file, &name)?,
                }
            }
            Target::Stream(mut stream) => {
                file.rewind()?;
                io::copy(&mut file, &mut stream)?;
            }
        }
        Ok(file)
    }
}

/// Writes a file, see the module. Returns it, to be read.
pub fn whole(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let mut output = Output::begin(path, 0o666)?;
    fill(&mut output.file)?;
    output.finish()
}

/// Writes a text, see the module.
pub fn text(path: &Path, text: &str) -> io::Result<()> {
    whole(path, |file| io::Write::write_all(file, text.as_bytes())).map(drop)
}

/// A file that grows while people look at it: empty at first, and there from the beginning. Otherwise see the module.
pub fn growing(path: &Path) -> io::Result<File> {
    let output = Output::begin(path, 0o666)?;
    match output.target {
        Target::Stream(stream) => Ok(stream),
        Target::Name(..) => output.finish(),
    }
}

/// A new file in a directory, without a name if the file system can do that.
pub(crate) fn new_file(directory: &Path, mode: u32) -> io::Result<(File, Option<TempPath>)> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match open(directory, flags, Mode::from_raw_mode(mode)) {
        Ok(file) => Ok((file.into(), None)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => hidden_file(directory, mode),
        Err(error) => Err(error.into()),
    }
}

fn hidden_file(directory: &Path, mode: u32) -> io::Result<(File, Option<TempPath>)> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(PREFIX).permissions(Permissions::from_mode(mode));
    let (file, path) = NamedTempFile::into_parts(builder.tempfile_in(directory)?);
    Ok((file, Some(path)))
}

/// Gives such a file its name, in the place of what has it.
pub(crate) fn give_name(file: &File, hidden: Option<TempPath>, name: &Path) -> io::Result<()> {
    let hidden = match hidden {
        Some(path) => path,
        None => match link(file, name) {
            // A link cannot replace a file: it gets a hidden name, and is then renamed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut builder = tempfile::Builder::new();
                builder.prefix(PREFIX).make_in(parent(name), |name| link(file, name))?.into_temp_path()
            }
            other => return other,
        },
    };
    hidden.persist(name).map_err(|error| error.error)
}

fn link(file: &File, name: &Path) -> io::Result<()> {
    Ok(linkat(CWD, handle(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// A path of an open file, named or not, for as long as it is open.
pub(crate) fn handle(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Follows a path. By opening it, so that the kernel decides which links in directories of others are followed, and which devices are
/// in use.
fn target(path: &Path) -> io::Result<Target> {
    let flags = OFlags::WRONLY | OFlags::EXCL | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = match open(path, flags, Mode::empty()) {
        Ok(file) => file.into(),
        Err(Errno::NOENT) => {
            return match std::fs::read_link(path) {
                Ok(to) => Err(refused(&format!("it is a link to {}, which does not exist", to.display()))),
                Err(_) => Ok(Target::Name(path.to_owned(), None)),
            };
        }
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Target::Stream(file));
    }
    if is_descriptor(path) {
        return Err(refused("it is an open file of this program: give the name of the file"));
    }
    let name = std::fs::read_link(handle(&file))?;
    let named = std::fs::metadata(&name)?;
    if (named.dev(), named.ino()) != (metadata.dev(), metadata.ino()) {
        return Err(refused("it was replaced by another process"));
    }
    Ok(Target::Name(name, Some(metadata.permissions().mode() & 0o777)))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Whether a path leads to a descriptor, as `/dev/stdout` does.
fn is_descriptor(path: &Path) -> bool {
    const PROC: rustix::fs::FsWord = 0x9fa0;
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let directory = parent(&path);
        if rustix::fs::statfs(directory).is_ok_and(|system| system.f_type == PROC) {
            return true;
        }
        match std::fs::read_link(&path) {
            Ok(to) => path = directory.join(to),
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use proptest::prelude::*;

    use super::*;

    fn content(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let all = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn hidden(target: Target) -> Output {
        let Target::Name(name, _) = &target else { panic!("a stream") };
        let (file, hidden) = hidden_file(parent(name), 0o600).unwrap();
        Output { file, hidden, target }
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all_with_and_without_a_name_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        text(&path, "one").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut second = hidden(target(&path).unwrap());
        second.file().write_all(b"two").unwrap();
        assert_eq!((content(&path).as_str(), names(directory.path()).len()), ("one", 2));
        second.finish().unwrap();
        assert_eq!((content(&path).as_str(), names(directory.path()).len()), ("two", 1));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let broken = whole(&path, |file| {
            file.write_all(b"half")?;
            assert_eq!(names(directory.path()), ["disk"]);
            Err(io::Error::other("broken"))
        });
        assert!(broken.is_err());
        drop(hidden(target(&path).unwrap()));
        assert_eq!((content(&path).as_str(), names(directory.path()).len()), ("two", 1));
        assert!(text(&directory.path().join("no/where"), "x").is_err());
        assert!(text(directory.path(), "x").is_err());
    }

    #[test]
    fn links_are_followed_or_refused_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, second, dangling] =
            ["file", "link", "second", "dangling"].map(|name| directory.path().join(name));
        text(&file, "old").unwrap();
        symlink("file", &link).unwrap();
        symlink(&link, &second).unwrap();
        symlink("nothing", &dangling).unwrap();
        text(&second, "new").unwrap();
        assert_eq!(content(&file), "new");
        let refused = text(&dangling, "new").unwrap_err().to_string();
        assert!(refused.contains("link to nothing, which does not exist"), "{refused}");
        assert_eq!(names(directory.path()), ["dangling", "file", "link", "second"]);
        assert!([link, second, dangling].iter().all(|path| path.is_symlink()));
        // As `/dev/stdout` is, where standard output is a file.
        let open = File::options().write(true).open(&file).unwrap();
        let refused = text(&handle(&open), "x").unwrap_err().to_string();
        assert!(refused.contains("open file of this program") && content(&file) == "new", "{refused}");
    }

    #[test]
    fn what_appears_meanwhile_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let outputs = [Output::begin(&path, 0o666).unwrap(), hidden(target(&path).unwrap())];
        std::fs::write(&path, "of another").unwrap();
        for output in outputs {
            assert_eq!(output.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!((content(&path).as_str(), names(directory.path()).len()), ("of another", 1));
    }

    #[test]
    fn pipes_and_devices_are_written_into() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || content(&path)
        });
        text(&path, "whole").unwrap();
        assert_eq!(reader.join().unwrap(), "whole");
        assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
        let link = directory.path().join("null");
        symlink("/dev/null", &link).unwrap();
        for device in [Path::new("/dev/null"), &link] {
            let mut written = whole(device, |file| file.write_all(b"lost")).unwrap();
            written.rewind().unwrap();
            let mut read = String::new();
            written.read_to_string(&mut read).unwrap();
            assert_eq!(read, "lost", "a caller reads what it wrote");
            growing(device).unwrap().write_all(b"more").unwrap();
        }
        assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device() && link.is_symlink());
        let log = directory.path().join("log");
        growing(&log).unwrap().write_all(b"line").unwrap();
        assert_eq!(content(&log), "line");
    }

    proptest! {
        #[test]
        fn no_kind_of_path_is_replaced_by_another(kind in 0..6, depth in 0..3_usize) {
            let directory = tempfile::tempdir().unwrap();
            let at = |name: &str| directory.path().join(name);
            match kind {
                0 => {}
                1 => std::fs::write(at("x"), "old").unwrap(),
                2 => std::fs::create_dir(at("x")).unwrap(),
                3 => symlink("/dev/full", at("x")).unwrap(),
                4 => symlink("x", at("x")).unwrap(),
                _ => drop(std::os::unix::net::UnixListener::bind(at("x")).unwrap()),
            }
            let mut path = at("x");
            for number in 0..depth {
                let link = at(&number.to_string());
                symlink(&path, &link).unwrap();
                path = link;
            }
            let kinds = || {
                let all = names(directory.path()).into_iter();
                all.map(|name| (std::fs::symlink_metadata(at(&name)).unwrap().file_type(), name))
                    .collect::<Vec<_>>()
            };
            let before = kinds();
            let result = text(&path, "new");
            let after = kinds();
            if kind == 0 && depth == 0 {
                prop_assert_eq!(content(&path), "new");
            } else {
                prop_assert_eq!(result.is_ok(), kind == 1);
                prop_assert_eq!(before, after);
            }
        }
    }
}
