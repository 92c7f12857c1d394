//! Users of the image, from `/etc/passwd` and `/etc/group`, read without the C library's services.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Largest number of supplementary groups that Linux takes.
const MOST_GROUPS: usize = 65_536;

/// The user that logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// All groups, the primary one among them.
    pub(super) groups: Vec<u32>,
    pub(super) home: PathBuf,
    /// Empty: the default.
    pub(super) shell: String,
}

impl Account {
    /// The user of that name; root exists in every image.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let read = |path| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
        let passwd = read("/etc/passwd").unwrap_or_default();
        let group = read("/etc/group").unwrap_or_default();
        Self::parse(name, &passwd, &group)
    }

    fn parse(name: &str, passwd: &str, group: &str) -> Option<Self> {
        let entry = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [user, _, uid, gid, _, home, shell] = fields[..] else { return None };
            (user == name && !name.is_empty()).then_some(())?;
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            let home = if home.starts_with('/') { home } else { "/" };
            Some(Self {
                name: name.to_owned(),
                uid,
                gid,
                groups: groups(name, gid, group),
                home: home.into(),
                shell: shell.trim_end().to_owned(),
            })
        };
        passwd.lines().find_map(entry).or_else(|| {
            (name == "root").then(|| Self {
                name: name.to_owned(),
                uid: 0,
                gid: 0,
                groups: groups(name, 0, group),
                home: "/root".into(),
                shell: String::new(),
            })
        })
    }

    /// Whether `uid` may own the files that decide which clients become this user.
    pub(super) const fn trusts(&self, uid: u32) -> bool {
        uid == 0 || uid == self.uid
    }
}

fn groups(name: &str, gid: u32, group: &str) -> Vec<u32> {
    let member = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let gid: u32 = fields.next()?.parse().ok()?;
        fields.next()?.split(',').any(|member| member.trim() == name).then_some(gid)
    };
    let groups: BTreeSet<u32> = group.lines().filter_map(member).chain([gid]).take(MOST_GROUPS).collect();
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn users_are_found_with_their_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\npg:x:70:71::/var/lib/pg:/bin/sh\nbad:x:a:1::/:\n";
        let group = "root:x:0:\nssl:x:99:pg,other\nwheel:x:10:other\n";
        let account = Account::parse("pg", passwd, group).unwrap();
        assert_eq!((account.uid, account.gid, account.groups), (70, 71, vec![71, 99]));
        assert_eq!(Account::parse("bad", passwd, group), None);
        assert_eq!(Account::parse("", passwd, group), None);
        assert_eq!(Account::parse("nobody", passwd, group), None);
        assert_eq!(Account::parse("root", "", "").unwrap().uid, 0);
    }

    proptest! {
        #[test]
        fn any_text_is_read(passwd in "[a-z:0-9/\n]{0,80}", group in "[a-z:0-9,\n]{0,80}", name in "[a-z]{0,2}") {
            let _ = Account::parse(&name, &passwd, &group);
        }
    }
}
