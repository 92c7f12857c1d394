//! Who has a port.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

/// Whether the port of 127.0.0.1 can be had.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// The process that listens on a port, as far as we may see: `name (pid 12)`.
pub(crate) fn owner(port: u16) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter(|entry| entry.file_name().to_string_lossy().chars().all(|c| c.is_ascii_digit()))
        .find(|entry| holds(&entry.path(), &inodes))
        .map(|entry| {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            format!("{} (pid {})", name.trim(), entry.file_name().to_string_lossy())
        })
}

/// Inodes of the sockets that listen on a port, from a table such as `/proc/net/tcp`.
fn listening(table: &str, port: u16) -> Vec<String> {
    let wanted = format!(":{port:04X}");
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1).is_some_and(|address| address.ends_with(&wanted)))
        .filter(|fields| fields.get(3) == Some(&"0A"))
        .filter_map(|fields| fields.get(9).map(|&inode| inode.to_owned()))
        .collect()
}

fn holds(process: &Path, inodes: &[String]) -> bool {
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| std::fs::read_link(file.path()).ok())
        .filter_map(|target| {
            let target = target.to_string_lossy().into_owned();
            Some(target.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .any(|inode| inodes.contains(&inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_free(port));
        assert!(owner(port).unwrap().ends_with(&format!("(pid {})", std::process::id())));
    }
}
