//! What becomes of extended attributes on the way to ext4. Pure.

use neonvm_disk::ext4::{self, Dropped};
use neonvm_disk::tree::{Bytes, InodeId, Sources, Tree};

use crate::accounts::Accounts;
use crate::layer::TEXT_LIST;
use crate::source::{HOST, printable};

#[cfg(test)]
mod tests;

/// Access control lists as system calls have them.
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NAMED: usize = 4;

/// Why attributes cannot be put on a disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    FileSystem(#[from] ext4::Error),
    #[error("{path}: the access control list {list}: {problem}")]
    List { path: String, list: String, problem: String },
}

/// Makes the attributes of a tree such that ext4 can store them; returns a warning of what was left out.
///
/// # Errors
/// If what access depends on would be left out.
pub(crate) fn settle(tree: &mut Tree, sources: &dyn Sources) -> Result<Option<String>, Error> {
    let lists = text_lists(tree);
    let accounts = if lists.is_empty() { Accounts::default() } else { Accounts::of(tree, sources) };
    for (path, id) in lists {
        let Some(inode) = tree.get_mut(id) else { continue };
        let texts: Vec<(Bytes, Bytes)> =
            inode.metadata.xattrs.extract_if(.., |name, _| name.starts_with(TEXT_LIST)).collect();
        for (key, text) in texts {
            let failed =
                |problem: String| Error::List { path: path.clone(), list: printable(&text), problem };
            let name = match key.strip_prefix(TEXT_LIST) {
                Some(b"access") => ACCESS,
                Some(b"default") => DEFAULT,
                _ => {
                    of_three(&text).then_some(()).ok_or_else(|| {
                        failed("ext4 stores lists of POSIX only, not of NFSv4 or macOS".to_owned())
                    })?;
                    continue;
                }
            };
            let list = posix(&text, &accounts).map_err(failed)?;
            if let Some(list) = list.filter(|_| !inode.metadata.xattrs.contains_key(name)) {
                inode.metadata.xattrs.insert(name.to_vec(), list);
            }
        }
    }
    Ok(ext4::drop_unstorable(tree)?.map(|dropped| warning(&dropped)))
}

fn text_lists(tree: &Tree) -> Vec<(String, InodeId)> {
    let mut found = Vec::new();
    let mut ahead = vec![(String::new(), tree.root())];
    while let Some((path, id)) = ahead.pop() {
        for (name, child) in tree.names(id).into_iter().flatten() {
            ahead.push((format!("{path}/{}", String::from_utf8_lossy(name)), *child));
        }
        let mut names = tree.get(id).into_iter().flat_map(|inode| inode.metadata.xattrs.keys());
        if names.any(|name| name.starts_with(TEXT_LIST)) {
            found.push((path, id));
        }
    }
    found
}

fn warning(dropped: &Dropped) -> String {
    let plural = |count: u64, one: &str, many: &str| {
        if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
    };
    let mut names: Vec<(&String, &u64)> = dropped.names.iter().collect();
    names.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    let plain = |name: &str| name.strip_prefix(HOST).map(|name| name.escape_debug().to_string());
    let shown: Vec<String> = names
        .iter()
        .take(NAMED)
        .map(|(name, count)| {
            format!("{} ({count})", plain(name).unwrap_or_else(|| name.escape_debug().to_string()))
        })
        .collect();
    let of_host = names.iter().filter(|(name, _)| name.starts_with(HOST)).count();
    let why = match (of_host, names.len() - of_host) {
        (0, _) => "which ext4 cannot store",
        (_, 0) => "which describe this host",
        _ => "which ext4 cannot store or which describe this host",
    };
    let more = names.len().saturating_sub(NAMED);
    let more =
        if more > 0 { format!(" and {} more", plural(more as u64, "name", "names")) } else { String::new() };
    format!(
        "{} of {} left out, {why}: {}{more}; the first is at {}",
        plural(dropped.attributes, "extended attribute", "extended attributes"),
        plural(dropped.files, "file", "files"),
        shown.join(", "),
        dropped.example.escape_debug(),
    )
}

/// Whether a list of NFSv4 as text names only the owner, the group and everyone, whose rights are the permissions of the file.
fn of_three(text: &[u8]) -> bool {
    let mut entries = text.split(|byte| matches!(byte, b',' | b'\n')).map(<[u8]>::trim_ascii);
    entries.all(|entry| {
        entry.is_empty()
            || [&b"owner@:"[..], b"group@:", b"everyone@:"].iter().any(|who| entry.starts_with(who))
    })
}

/// A list as system calls have it, from its text: `user::rw-,user:NAME:r--:ID,…`. `None`: it has only what the permissions of the
/// file express.
fn posix(text: &[u8], accounts: &Accounts) -> Result<Option<Vec<u8>>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut entries: Vec<(u16, u32, u16)> = Vec::new();
    let lines = text.split([',', '\n']).map(|entry| entry.split('#').next().unwrap_or_default().trim());
    for entry in lines.filter(|entry| !entry.is_empty()) {
        entries.push(posix_entry(entry, accounts)?);
    }
    entries.sort_unstable();
    let is_twice = entries.windows(2).any(|two| matches!(two, [(a, x, _), (b, y, _)] if (a, x) == (b, y)));
    let has = |tag: u16| entries.iter().any(|(has, ..)| *has == tag);
    if is_twice || ![0x01, 0x04, 0x20].into_iter().all(has) {
        return Err("it needs one entry each for the owner, the group and others, and none twice".to_owned());
    }
    if (has(0x02) || has(0x08)) && !has(0x10) {
        return Err("it names users or groups and has no mask".to_owned());
    }
    if entries.len() == 3 {
        return Ok(None);
    }
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    Ok(Some(list))
}

/// Tag, number and permissions of an entry.
fn posix_entry(entry: &str, accounts: &Accounts) -> Result<(u16, u32, u16), String> {
    let wrong = || format!("{entry:?} is no entry, such as user:1000:rw-");
    let mut fields = entry.split(':').map(str::trim);
    let (kind, first) = (fields.next().unwrap_or_default(), fields.next().ok_or_else(wrong)?);
    // `mask:rw-` and `other:r--` are written, too.
    let is_short = matches!(kind, "mask" | "m" | "other" | "o") && !first.is_empty();
    let (who, permissions) = if is_short { ("", first) } else { (first, fields.next().ok_or_else(wrong)?) };
    let number = fields.next();
    let permissions = permissions.bytes().try_fold(0u16, |bits, byte| {
        Some(
            bits | match byte {
                b'r' => 4,
                b'w' => 2,
                b'x' => 1,
                b'-' => 0,
                _ => return None,
            },
        )
    });
    let permissions = permissions.ok_or_else(wrong)?;
    let given = number.or(Some(who)).and_then(|text| text.parse::<u32>().ok());
    let (tag, id) = match (kind, who.is_empty()) {
        ("user" | "u", true) => (0x01, u32::MAX),
        ("group" | "g", true) => (0x04, u32::MAX),
        ("mask" | "m", _) => (0x10, u32::MAX),
        ("other" | "o", _) => (0x20, u32::MAX),
        ("user" | "u", false) => {
            let found = given.or_else(|| accounts.user(who).map(|(uid, _)| uid));
            (0x02, found.ok_or_else(|| format!("user {who:?} is not in /etc/passwd of the image"))?)
        }
        ("group" | "g", false) => {
            let found = given.or_else(|| accounts.group(who));
            (0x08, found.ok_or_else(|| format!("group {who:?} is not in /etc/group of the image"))?)
        }
        _ => return Err(wrong()),
    };
    Ok((tag, id, permissions))
}
