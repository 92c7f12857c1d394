//! `/etc/resolv.conf`, replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::packet::Offer;

pub const PATH: &str = "/etc/resolv.conf";
/// Where files are that are used when `/etc` cannot be written to.
const ASIDE: &str = "/run/neonvm/etc";

/// Content of the file. None if the server named no name server: then what the image has stays.
pub fn render(offer: &Offer) -> Option<String> {
    text(&offer.search, &offer.name_servers)
}

/// Content of the file for these domains and servers. None without servers.
pub fn text(search: &[String], name_servers: &[std::net::Ipv4Addr]) -> Option<String> {
    if name_servers.is_empty() {
        return None;
    }
    let mut text = String::new();
    if !search.is_empty() {
        text.push_str(&format!("search {}\n", search.join(" ")));
    }
    for server in name_servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    Some(text)
}

/// Replaces a file of `/etc`; readers see the old content or the new. On a read-only root the new file is mounted over it.
///
/// # Errors
/// When neither is possible.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    match replace(path, text) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            let aside = Path::new(ASIDE).join(path.file_name().unwrap_or_default());
            let mounted = aside.exists();
            fs::create_dir_all(ASIDE)?;
            if mounted {
                // It is what is mounted: rewritten in place, as a new file would not be seen through the mount.
                return fs::write(aside, text);
            }
            fs::write(&aside, text)?;
            Ok(rustix::mount::mount_bind(&aside, path)?)
        }
        Err(error) => Err(error),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut next = path.as_os_str().to_owned();
    next.push(".neonvm");
    let next = Path::new(&next);
    let mut file = File::create(next)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    fs::rename(next, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(name_servers: Vec<std::net::Ipv4Addr>) -> Offer {
        Offer {
            address: [1, 2, 3, 4].into(),
            prefix: 24,
            routes: Vec::new(),
            name_servers,
            search: vec!["a.b".into(), "c".into()],
            hostname: None,
            mtu: None,
            lease: None,
            renewal: None,
            rebinding: None,
        }
    }

    #[test]
    fn servers_and_search_list_are_written() {
        let text = render(&offer(vec![[10, 0, 0, 10].into()]));
        assert_eq!(text.as_deref(), Some("search a.b c\nnameserver 10.0.0.10\n"));
        assert_eq!(render(&offer(Vec::new())), None);
    }

    #[test]
    fn the_file_is_replaced_even_if_it_is_a_dangling_link() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        std::os::unix::fs::symlink("../run/gone", &path).unwrap();
        replace(&path, "x\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
