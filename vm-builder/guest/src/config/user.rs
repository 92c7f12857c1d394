//! Users and groups of the image, from its own files: the C library's lookup needs plug-ins an image may not have.

/// The user and groups that a process runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Home directory; `/` when unknown.
    pub home: String,
    /// Name, when the image has one.
    pub name: Option<String>,
    /// Login shell, when the image names one.
    pub shell: Option<String>,
}

/// Why a user cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    #[error("user {0:?} is not in /etc/passwd of the image")]
    NoUser(String),
    #[error("group {0:?} is not in /etc/group of the image")]
    NoGroup(String),
}

/// The text of `/etc/passwd` and `/etc/group`; empty when the image has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// `/etc/passwd`.
    pub passwd: String,
    /// `/etc/group`.
    pub group: String,
}

impl Accounts {
    /// Reads both files below `/etc`; what is missing or is not text is as if empty.
    pub fn read() -> Self {
        let read = |path: &str| {
            std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        Self { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    /// Resolves `user`, `uid`, `user:group` or `uid:gid`; empty: root.
    pub fn resolve(&self, text: &str) -> Result<Account, UserError> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let user = if user.is_empty() { "0" } else { user };
        let mut account = self.user(user)?;
        // A group that is named replaces all the user's groups, as container engines do.
        if let Some(group) = group.filter(|group| !group.is_empty()) {
            account.gid = self.group(group)?;
            account.groups = Vec::new();
        } else if let Some(name) = &account.name {
            account.groups = self.supplementary(name, account.gid);
        }
        Ok(account)
    }

    fn user(&self, wanted: &str) -> Result<Account, UserError> {
        let number = wanted.parse::<u32>().ok();
        let entries = || self.passwd.lines().filter_map(passwd_entry);
        // A user may be named by digits only; a name goes before a number.
        let found = entries()
            .find(|entry| entry.name.as_deref() == Some(wanted))
            .or_else(|| number.and_then(|uid| entries().find(|entry| entry.uid == uid)));
        match (found, number) {
            (Some(entry), _) => Ok(entry),
            (None, Some(uid)) => {
                let home = if uid == 0 { "/root" } else { "/" };
                Ok(Account { uid, home: home.into(), ..Account::default() })
            }
            (None, None) if wanted == "root" => {
                Ok(Account { home: "/root".into(), name: Some("root".into()), ..Account::default() })
            }
            (None, None) => Err(UserError::NoUser(wanted.to_owned())),
        }
    }

    fn group(&self, wanted: &str) -> Result<u32, UserError> {
        let found = self.group.lines().filter_map(group_entry).find(|(name, ..)| *name == wanted);
        match (found, wanted.parse::<u32>()) {
            (Some((_, gid, _)), _) => Ok(gid),
            (None, Ok(gid)) => Ok(gid),
            (None, Err(_)) if wanted == "root" => Ok(0),
            (None, Err(_)) => Err(UserError::NoGroup(wanted.to_owned())),
        }
    }

    fn supplementary(&self, user: &str, primary: u32) -> Vec<u32> {
        let mut groups: Vec<u32> = self
            .group
            .lines()
            .filter_map(group_entry)
            .filter(|(_, gid, members)| *gid != primary && members.split(',').any(|member| member == user))
            .map(|(_, gid, _)| gid)
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

fn passwd_entry(line: &str) -> Option<Account> {
    let mut fields = line.trim_end().split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with(['#', '+', '-']))?;
    let _password = fields.next()?;
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let _comment = fields.next();
    let home = fields.next().filter(|home| home.starts_with('/')).unwrap_or("/");
    let shell = fields.next().filter(|shell| shell.starts_with('/'));
    let (home, name, shell) = (home.to_owned(), Some(name.to_owned()), shell.map(str::to_owned));
    Some(Account { uid, gid, groups: Vec::new(), home, name, shell })
}

fn group_entry(line: &str) -> Option<(&str, u32, &str)> {
    let mut fields = line.trim_end().split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let _password = fields.next()?;
    let gid = fields.next()?.parse().ok()?;
    Some((name, gid, fields.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/bash\npostgres:x:999:998:,,,:/var/lib/postgresql:/bin/sh\n\
                     # comment:x:5:5\nbroken:x:abc:1\n+::::::\n1000:x:77:77::/seven:\n"
                .into(),
            group: "root:x:0:\npostgres:x:998:\nssl-cert:x:101:postgres,other\ntape:x:26:postgres\n".into(),
        }
    }

    #[test]
    fn every_form_is_resolved() {
        let resolved = |text: &str| {
            accounts().resolve(text).map(|account| (account.uid, account.gid, account.groups, account.home))
        };
        assert_eq!(resolved(""), Ok((0, 0, vec![], "/root".into())));
        assert_eq!(resolved("postgres"), Ok((999, 998, vec![26, 101], "/var/lib/postgresql".into())));
        assert_eq!(resolved("999"), Ok((999, 998, vec![26, 101], "/var/lib/postgresql".into())));
        assert_eq!(resolved("postgres:ssl-cert"), Ok((999, 101, vec![], "/var/lib/postgresql".into())));
        assert_eq!(resolved("5000:6000"), Ok((5000, 6000, vec![], "/".into())));
        assert_eq!(resolved("5000"), Ok((5000, 0, vec![], "/".into())));
        assert_eq!(resolved("1000").map(|r| r.0), Ok(77));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(accounts().resolve("nobody"), Err(UserError::NoUser("nobody".into())));
        assert_eq!(accounts().resolve("0:nobody"), Err(UserError::NoGroup("nobody".into())));
        assert_eq!(accounts().resolve("broken"), Err(UserError::NoUser("broken".into())));
        assert_eq!(Accounts::default().resolve("root:root").map(|account| account.uid), Ok(0));
    }

    proptest! {
        #[test]
        fn numbers_are_always_resolved(uid: u32, gid: u32) {
            let account = accounts().resolve(&format!("{uid}:{gid}")).unwrap();
            prop_assert_eq!(account.gid, gid);
        }

        #[test]
        fn a_written_entry_is_found(name in "[a-z_][a-z0-9_-]{0,15}", uid: u32, gid: u32) {
            let accounts = Accounts { passwd: format!("{name}:x:{uid}:{gid}::/h:/s\n"), group: String::new() };
            let account = accounts.resolve(&name).unwrap();
            prop_assert_eq!((account.uid, account.gid, account.home.as_str()), (uid, gid, "/h"));
        }
    }
}
