//! Commands of the shell that change files and kernel settings. Small on purpose: the commands that an init container
//! of a runner calls to copy a disk, and that an administrator needs to repair a VM.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use super::usage;

/// `cp FROM TO` and `mv FROM TO`: single files; `TO` may be a directory.
pub(super) fn transfer(command: &str, arguments: &[String]) -> io::Result<()> {
    let [from, to] = arguments else { return Err(usage("expected FROM TO")) };
    let from = Path::new(from);
    let named = |error: io::Error| usage(&format!("{}: {error}", from.display()));
    let to = match (fs::metadata(to), from.file_name()) {
        (Ok(target), Some(name)) if target.is_dir() => Path::new(to).join(name),
        _ => PathBuf::from(to),
    };
    if command == "mv" {
        match fs::rename(from, &to) {
            // Another file system: copied below, then removed.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
            done => return done.map_err(named),
        }
    }
    fs::copy(from, &to).map_err(named)?;
    if command == "mv" { fs::remove_file(from).map_err(named) } else { Ok(()) }
}

/// `chown UID[:GID] PATH…`: numbers only, because an image may have no names.
pub(super) fn owner(arguments: &[String]) -> io::Result<()> {
    let Some((owner, paths)) = arguments.split_first().filter(|(_, paths)| !paths.is_empty()) else {
        return Err(usage("expected UID[:GID] PATH…"));
    };
    let (user, group) =
        owner.split_once(':').map_or((owner.as_str(), None), |(user, group)| (user, Some(group)));
    let number = |text: &str| text.parse::<u32>().map_err(|_| usage(&format!("{text}: expected a number")));
    let (user, group) = (number(user)?, group.map(number).transpose()?);
    paths.iter().try_for_each(|path| {
        chown(path, Some(user), group).map_err(|error| usage(&format!("{path}: {error}")))
    })
}

/// `sysctl [-w] NAME[=VALUE]…`
pub(super) fn sysctl(arguments: &[String], output: &mut dyn Write) -> io::Result<()> {
    for setting in arguments.iter().filter(|argument| *argument != "-w") {
        let (name, value) =
            setting.split_once('=').map_or((setting.as_str(), None), |(name, value)| (name, Some(value)));
        if name.contains("..") {
            return Err(usage(&format!("{name}: no such setting")));
        }
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        let named = |error: io::Error| usage(&format!("{name}: {error}"));
        if let Some(value) = value {
            fs::write(&path, value).map_err(named)?;
        }
        writeln!(output, "{name} = {}", fs::read_to_string(&path).map_err(named)?.trim())?;
    }
    Ok(())
}
