//! Which keys may log in.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use russh::keys::PublicKey;

use crate::config::Account;

/// More of a file of keys is not read.
const LARGEST: u64 = 1024 * 1024;

/// What a key may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grant {
    /// Runs this whatever the client requests.
    pub(super) command: Option<String>,
    pub(super) no_pty: bool,
    /// Whether no connection is forwarded for it.
    pub(super) no_forwarding: bool,
}

/// What `key` may do as `account`; `log` gets the files and keys that are not honoured.
pub(super) fn find(
    account: &Account,
    key: &PublicKey,
    shared: &[PathBuf],
    mut log: impl FnMut(String),
) -> Option<Grant> {
    let own = Path::new(&account.home).join(".ssh/authorized_keys");
    let files = shared.iter().map(|path| (path.as_path(), false)).chain([(own.as_path(), true)]);
    for (path, own) in files {
        match read(path, account, own) {
            Ok(text) => {
                if let Some(grant) = search(&text, key, |why| log(format!("{}: {why}", path.display()))) {
                    return Some(grant);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => log(format!("{}: {error}", path.display())),
        }
    }
    None
}

/// The text of a file, if its owner and mode guarantee that no other user wrote it.
fn read(path: &Path, account: &Account, own: bool) -> std::io::Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default())
        .open(path)?;
    trusted(&file, account)?;
    if own {
        let directories =
            path.ancestors().skip(1).take_while(|directory| directory.starts_with(&account.home));
        for directory in directories {
            trusted(&File::open(directory)?, account)?;
        }
    }
    let mut content = Vec::new();
    file.take(LARGEST).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

fn trusted(file: &File, account: &Account) -> std::io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(std::io::Error::other("neither a file nor a directory"));
    }
    if ![0, account.uid].contains(&metadata.uid()) {
        return Err(std::io::Error::other(format!("not honoured: belongs to user {}", metadata.uid())));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(std::io::Error::other(
            "not honoured: others can write to it, or to a directory above it",
        ));
    }
    Ok(())
}

fn search(text: &str, key: &PublicKey, mut log: impl FnMut(String)) -> Option<Grant> {
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // A line that starts with a key has no options. One with a key of an unknown kind is skipped.
        let (options, text) =
            if PublicKey::from_openssh(line).is_ok() { ("", line) } else { split(line, char::is_whitespace) };
        let Ok(found) = PublicKey::from_openssh(text.trim_start()) else { continue };
        if found.key_data() != key.key_data() {
            continue;
        }
        match grant(options) {
            Ok(grant) => return Some(grant),
            Err(option) => log(format!("line {}: not honoured: option {option:?}", number + 1)),
        }
    }
    None
}

/// The text before and behind the first such character outside double quotes; a quote behind a backslash is none.
fn split(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in text.char_indices() {
        if !quoted && ends(character) {
            let (before, rest) = text.split_at(at);
            return (before, rest.get(character.len_utf8()..).unwrap_or_default());
        }
        quoted ^= character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
    }
    (text, "")
}

/// What the options allow, or the option that cannot be honoured.
fn grant(options: &str) -> Result<Grant, String> {
    let mut grant = Grant::default();
    let mut rest = options;
    while !rest.is_empty() {
        let (option, behind) = split(rest, |character| character == ',');
        rest = behind;
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        match (name.to_ascii_lowercase().as_str(), value) {
            ("restrict", None) => (grant.no_pty, grant.no_forwarding) = (true, true),
            ("no-pty", None) => grant.no_pty = true,
            ("pty", None) => grant.no_pty = false,
            ("no-port-forwarding", None) => grant.no_forwarding = true,
            ("port-forwarding", None) => grant.no_forwarding = false,
            // There is none of these anyway.
            ("no-agent-forwarding" | "no-x11-forwarding" | "no-user-rc", None) => {}
            ("command", Some(value)) => {
                grant.command = Some(unquoted(value).ok_or_else(|| option.to_owned())?);
            }
            _ => return Err(option.to_owned()),
        }
    }
    Ok(grant)
}

/// The text between double quotes, in which `\"` is a quote.
fn unquoted(value: &str) -> Option<String> {
    let inner = value.strip_prefix('"')?.strip_suffix('"')?;
    Some(inner.replace("\\\"", "\""))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    fn searched(line: &str) -> (Option<Grant>, Vec<String>) {
        let key = PublicKey::from_openssh(KEY).unwrap();
        let mut log = Vec::new();
        (search(line, &key, |why| log.push(why)), log)
    }

    #[test]
    fn options_that_can_be_honoured_are() {
        let plain = Grant::default();
        assert_eq!(searched(&format!("# comment\n\nnonsense\n{KEY} me@home\n")).0, Some(plain));
        assert!(searched(&format!("no-port-forwarding {KEY}")).0.unwrap().no_forwarding);
        assert!(!searched(&format!("restrict,port-forwarding {KEY}")).0.unwrap().no_forwarding);
        assert!(searched(&format!("restrict {KEY}")).0.unwrap().no_pty);
        assert!(!searched(&format!("restrict,pty {KEY}")).0.unwrap().no_pty);
        let grant = searched(&format!(r#"command="echo \"a, b\" now",no-pty {KEY}"#)).0.unwrap();
        assert_eq!(grant.command.as_deref(), Some(r#"echo "a, b" now"#));
    }

    #[test]
    fn options_that_cannot_be_honoured_refuse_the_key() {
        for option in [r#"from="10.0.0.1""#, "cert-authority", r#"environment="A=b""#, "command=unquoted"] {
            let (grant, log) = searched(&format!("{option} {KEY}"));
            assert_eq!(grant, None, "{option}");
            assert_eq!(log.len(), 1, "{option}");
        }
    }

    #[test]
    fn files_others_can_write_are_not_honoured() {
        let home = tempfile::tempdir().unwrap();
        let uid = std::fs::metadata(home.path()).unwrap().uid();
        let account = Account { uid, home: home.path().display().to_string(), ..Account::default() };
        let key = PublicKey::from_openssh(KEY).unwrap();
        let directory = home.path().join(".ssh");
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("authorized_keys");
        std::fs::write(&file, KEY).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (path, bad, good) in [(&file, 0o664, 0o600), (&directory, 0o777, 0o700)] {
            mode(&file, 0o600);
            mode(&directory, 0o700);
            assert!(find(&account, &key, &[], |_| ()).is_some());
            mode(path, bad);
            let mut log = Vec::new();
            assert_eq!(find(&account, &key, &[], |why| log.push(why)), None);
            assert!(log[0].contains("others can write"), "{log:?}");
            mode(path, good);
        }
        let stranger = Account { uid: uid + 1, ..account };
        assert_eq!(find(&stranger, &key, &[], |_| ()).is_some(), uid == 0);
    }

    proptest! {
        #[test]
        fn any_line_is_read(options in "[a-z=\",\\\\ ]{0,40}", rest in "[ A-Za-z0-9+/=]{0,20}") {
            let _ = searched(&format!("{options} {KEY}{rest}"));
        }
    }
}
