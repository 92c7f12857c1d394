//! The requests, on the files of this machine.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, ReadDir};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, Mode, RenameFlags, Uid};

use super::wire::{Attributes, Fields, Reply, Status};
use super::{LARGEST_PIECE, MOST_HANDLES};

/// Most names in one answer.
const NAMES: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Files {
    open: BTreeMap<u32, Handle>,
    next: u32,
}

#[derive(Debug)]
enum Handle {
    File { file: File, append: bool },
    Directory { path: PathBuf, entries: ReadDir },
}

type ReplyResult = Result<Reply, Status>;

fn path<'a>(fields: &mut Fields<'a>) -> Result<&'a Path, Status> {
    let text = fields.text()?;
    Ok(Path::new(OsStr::from_bytes(if text.is_empty() { b"." } else { text })))
}

fn number(fields: &mut Fields<'_>) -> Result<u32, Status> {
    fields.number().ok_or(Status::BadMessage)
}

fn done(id: u32) -> ReplyResult {
    Ok(Reply::status(id, Status::Ok))
}

impl Files {
    /// Answers a request of the base protocol.
    pub(super) fn request(&mut self, kind: u8, id: u32, fields: &mut Fields<'_>) -> ReplyResult {
        match kind {
            3 => self.open(id, fields),
            4 => {
                let handle = Self::handle_number(fields)?;
                self.open.remove(&handle).ok_or(Status::Failure)?;
                done(id)
            }
            5 => self.read(id, fields),
            6 => self.write(id, fields),
            7 => Ok(Reply::attributes(id, &(&fs::symlink_metadata(path(fields)?)?).into())),
            8 => Ok(Reply::attributes(id, &(&self.file(fields)?.0.metadata()?).into())),
            9 => {
                let path = path(fields)?;
                change(&fields.attributes()?, Target::Path(path))?;
                done(id)
            }
            10 => {
                let file = self.file(fields)?.0;
                change(&fields.attributes()?, Target::File(file))?;
                done(id)
            }
            11 => {
                let path = path(fields)?.to_owned();
                let entries = fs::read_dir(&path)?;
                self.keep(id, Handle::Directory { path, entries })
            }
            12 => self.names(id, fields),
            13 => fs::remove_file(path(fields)?).map_err(Status::from).and_then(|()| done(id)),
            14 => {
                let path = path(fields)?;
                let mode = fields.attributes()?.mode.unwrap_or(0o777) & 0o7777;
                fs::DirBuilder::new().mode(mode).create(path)?;
                done(id)
            }
            15 => fs::remove_dir(path(fields)?).map_err(Status::from).and_then(|()| done(id)),
            16 => single(id, &real(path(fields)?)?),
            17 => Ok(Reply::attributes(id, &(&fs::metadata(path(fields)?)?).into())),
            18 => self.rename(id, fields, false),
            19 => single(id, &fs::read_link(path(fields)?)?),
            20 => {
                // OpenSSH has the two in this order, not in that of the draft, and all clients follow it.
                let (target, link) = (path(fields)?, path(fields)?);
                std::os::unix::fs::symlink(target, link)?;
                done(id)
            }
            _ => Err(Status::Unsupported),
        }
    }

    fn open(&mut self, id: u32, fields: &mut Fields<'_>) -> ReplyResult {
        let path = path(fields)?;
        let flags = number(fields)?;
        let mode = fields.attributes()?.mode.unwrap_or(0o666) & 0o7777;
        let has = |flag| flags & flag != 0;
        let (write, append, create) = (has(2), has(4), has(8));
        let mut options = OpenOptions::new();
        options.read(has(1)).write(write || append).mode(mode);
        options.truncate(has(0x10) && write).create(create && write).create_new(has(0x20) && create && write);
        let file = options.open(path)?;
        self.keep(id, Handle::File { file, append })
    }

    fn keep(&mut self, id: u32, handle: Handle) -> ReplyResult {
        if self.open.len() >= MOST_HANDLES {
            return Err(Status::Failure);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(number, handle);
        Ok(Reply::handle(id, number))
    }

    fn handle_number(fields: &mut Fields<'_>) -> Result<u32, Status> {
        fields.text()?.try_into().map(u32::from_be_bytes).map_err(|_| Status::Failure)
    }

    fn file(&self, fields: &mut Fields<'_>) -> Result<(&File, bool), Status> {
        match self.open.get(&Self::handle_number(fields)?) {
            Some(Handle::File { file, append }) => Ok((file, *append)),
            _ => Err(Status::Failure),
        }
    }

    fn read(&self, id: u32, fields: &mut Fields<'_>) -> ReplyResult {
        let (file, _) = self.file(fields)?;
        let offset = fields.long().ok_or(Status::BadMessage)?;
        let length = number(fields)?.min(LARGEST_PIECE);
        let mut data = vec![0; usize::try_from(length).unwrap_or_default()];
        let read = file.read_at(&mut data, offset)?;
        match data.get(..read) {
            Some(data) if !data.is_empty() || length == 0 => Ok(Reply::data(id, data)),
            _ => Err(Status::End),
        }
    }

    fn write(&self, id: u32, fields: &mut Fields<'_>) -> ReplyResult {
        let (file, append) = self.file(fields)?;
        let offset = fields.long().ok_or(Status::BadMessage)?;
        let data = fields.text()?;
        let offset = if append { file.metadata()?.len() } else { offset };
        file.write_all_at(data, offset)?;
        done(id)
    }

    fn names(&mut self, id: u32, fields: &mut Fields<'_>) -> ReplyResult {
        let Some(Handle::Directory { path, entries }) = self.open.get_mut(&Self::handle_number(fields)?)
        else {
            return Err(Status::Failure);
        };
        let mut names = Vec::new();
        for entry in entries.by_ref().take(NAMES) {
            let name = entry?.file_name();
            // A file may be gone again.
            let Ok(metadata) = fs::symlink_metadata(path.join(&name)) else { continue };
            let line = line(&name.to_string_lossy(), &metadata);
            names.push((name.as_bytes().to_owned(), line, Attributes::from(&metadata)));
        }
        if names.is_empty() { Err(Status::End) } else { Ok(Reply::names(id, &names)) }
    }

    pub(super) fn rename(&self, id: u32, fields: &mut Fields<'_>, replace: bool) -> ReplyResult {
        let (from, to) = (path(fields)?, path(fields)?);
        if replace {
            fs::rename(from, to)?;
        } else {
            match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                // The file system does not support it.
                Err(rustix::io::Errno::INVAL) if fs::symlink_metadata(to).is_err() => fs::rename(from, to)?,
                result => result?,
            }
        }
        done(id)
    }

    pub(super) fn link(&self, id: u32, fields: &mut Fields<'_>) -> ReplyResult {
        let (from, to) = (path(fields)?, path(fields)?);
        fs::hard_link(from, to)?;
        done(id)
    }

    pub(super) fn sync(&self, id: u32, fields: &mut Fields<'_>) -> ReplyResult {
        self.file(fields)?.0.sync_all()?;
        done(id)
    }
}

fn single(id: u32, path: &Path) -> ReplyResult {
    let name = path.as_os_str().as_bytes().to_owned();
    Ok(Reply::names(id, &[(name, path.to_string_lossy().into_owned(), Attributes::default())]))
}

/// The absolute path without links; what it names need not exist, what leads there must.
fn real(path: &Path) -> Result<PathBuf, Status> {
    match (fs::canonicalize(path), path.file_name()) {
        (Err(error), Some(name)) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok(fs::canonicalize(parent.unwrap_or(Path::new(".")))?.join(name))
        }
        (result, _) => Ok(result?),
    }
}

#[derive(Clone, Copy)]
enum Target<'a> {
    Path(&'a Path),
    File(&'a File),
}

fn change(attributes: &Attributes, target: Target<'_>) -> Result<(), Status> {
    // Ways to open what may be read only are the kernel's to refuse.
    let opened;
    let file = match target {
        Target::File(file) => Some(file),
        Target::Path(path) if attributes.size.is_some() => {
            opened = OpenOptions::new().write(true).open(path)?;
            Some(&opened)
        }
        Target::Path(_) => None,
    };
    if let (Some(size), Some(file)) = (attributes.size, file) {
        file.set_len(size)?;
    }
    if let Some(mode) = attributes.mode {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        match target {
            Target::Path(path) => rustix::fs::chmod(path, mode)?,
            Target::File(file) => rustix::fs::fchmod(file, mode)?,
        }
    }
    if let Some((uid, gid)) = attributes.owner {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(rustix::fs::Gid::from_raw(gid)));
        match target {
            Target::Path(path) => rustix::fs::chown(path, uid, gid)?,
            Target::File(file) => rustix::fs::fchown(file, uid, gid)?,
        }
    }
    if let Some((access, modification)) = attributes.times {
        let at = |seconds: u32| UNIX_EPOCH + Duration::from_secs(seconds.into());
        let times = fs::FileTimes::new().set_accessed(at(access)).set_modified(at(modification));
        match target {
            Target::Path(path) => File::open(path)?.set_times(times)?,
            Target::File(file) => file.set_times(times)?,
        }
    }
    Ok(())
}

/// A line for people, in the form of `ls -l`; clients that parse it want nine columns.
fn line(name: &str, metadata: &Metadata) -> String {
    let kind = match () {
        () if metadata.is_dir() => 'd',
        () if metadata.is_symlink() => 'l',
        () => '-',
    };
    let bit = |shift: u32, letter: char| if metadata.mode() >> shift & 1 == 1 { letter } else { '-' };
    let mode: String =
        (0..9).rev().zip("rwxrwxrwx".chars()).map(|(shift, letter)| bit(shift, letter)).collect();
    let (links, uid, gid, size) = (metadata.nlink(), metadata.uid(), metadata.gid(), metadata.len());
    let days = u64::try_from(metadata.mtime()).unwrap_or_default() / 86_400;
    let (year, month, day) = crate::files::plan::date(days);
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month =
        usize::try_from(month).ok().and_then(|month| months.get(month.checked_sub(1)?)).unwrap_or(&"Jan");
    format!("{kind}{mode} {links:>4} {uid:<8} {gid:<8} {size:>12} {month} {day:>2}  {year} {name}")
}
