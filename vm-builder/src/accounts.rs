//! Users and groups of an image, by its own files. Pure.

use neonvm_disk::tree::{Sources, Tree};

use crate::content;

/// Longest `/etc/passwd` and `/etc/group`, in bytes.
const LONGEST: usize = 8 << 20;

/// The text of `/etc/passwd` and `/etc/group`; empty if the image has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    /// Those of an image.
    pub(crate) fn of(tree: &Tree, sources: &dyn Sources) -> Self {
        let text = |path: &[u8]| {
            let bytes = content::read(tree, sources, path, LONGEST).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Self { passwd: text(b"/etc/passwd"), group: text(b"/etc/group") }
    }

    /// Number and group of a user.
    pub(crate) fn user(&self, name: &str) -> Option<(u32, u32)> {
        let fields = entry(&self.passwd, name)?;
        Some((number(&fields, 2)?, number(&fields, 3)?))
    }

    pub(crate) fn group(&self, name: &str) -> Option<u32> {
        number(&entry(&self.group, name)?, 2)
    }

    /// Name and group of a user by number, if the image has that user.
    fn by_number(&self, uid: u32) -> Option<(&str, u32)> {
        let mut users = self.passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let fields = users.find(|fields| number(fields, 2) == Some(uid))?;
        Some((fields.first()?, number(&fields, 3)?))
    }

    /// Number and groups of the user of a process, the first group being its own: `user`, `uid`, `user:group`, `uid:gid`; empty is
    /// root. The error has what the image does not have. The guest program resolves it in the same way.
    pub(crate) fn resolve(&self, text: &str) -> Result<(u32, Vec<u32>), String> {
        let (user, group) = text.split_once(':').map_or((text, ""), |(user, group)| (user, group));
        let user = if user.is_empty() { "0" } else { user };
        let number_of = |uid: u32| {
            let (name, gid) = self.by_number(uid).unwrap_or(("", 0));
            (name, uid, gid)
        };
        let by_name = self.user(user).map(|(uid, gid)| (user, uid, gid));
        let by_number = user.parse::<u32>().ok().map(number_of);
        let of_root = (user == "root").then_some(("root", 0, 0));
        let found = by_name.or(by_number).or(of_root);
        let (name, uid, gid) = found.ok_or_else(|| format!("user {user:?} is not in /etc/passwd"))?;
        if group.is_empty() {
            let members = self.group.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let is_member = |fields: &Vec<&str>| {
                fields.get(3).is_some_and(|members| {
                    !name.is_empty() && members.split(',').any(|member| member == name)
                })
            };
            let others = members.filter(is_member).filter_map(|fields| number(&fields, 2));
            return Ok((uid, std::iter::once(gid).chain(others).collect()));
        }
        let of_root = (group == "root").then_some(0);
        let gid = self.group(group).or(group.parse().ok()).or(of_root);
        Ok((uid, vec![gid.ok_or_else(|| format!("group {group:?} is not in /etc/group"))?]))
    }
}

/// The fields of the line that begins with this name and has a number.
fn entry<'a>(table: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut lines = table.lines().map(|line| line.trim_end().split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.first() == Some(&name) && number(fields, 2).is_some())
}

fn number(fields: &[&str], at: usize) -> Option<u32> {
    fields.get(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_user_is_what_the_guest_takes_it_for() {
        let accounts = Accounts {
            passwd: "root:x:0:0::/root:/bin/sh\npg:x:999:998::/:/bin/sh\nbroken:x:abc:1\n1000:x:77:78::/:\n"
                .into(),
            group: "root:x:0:\npg:x:998:\nssl:x:101:pg,other\n".into(),
        };
        for (text, expected) in [
            ("", (0, vec![0])),
            ("root", (0, vec![0])),
            ("pg", (999, vec![998, 101])),
            ("999", (999, vec![998, 101])),
            ("1000", (77, vec![78])),
            ("pg:ssl", (999, vec![101])),
            ("5000:6000", (5000, vec![6000])),
            ("5000", (5000, vec![0])),
            (":ssl", (0, vec![101])),
        ] {
            assert_eq!(accounts.resolve(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("nobody", "user \"nobody\""),
            ("broken", "user \"broken\""),
            ("0:x", "group \"x\""),
            ("-1", "user"),
        ] {
            assert!(accounts.resolve(text).unwrap_err().contains(expected), "{text}");
        }
        assert_eq!(Accounts::default().resolve("root:root"), Ok((0, vec![0])));
    }

    proptest! {
        #[test]
        fn any_files_are_read(passwd: String, group: String, user: String) {
            let _ = Accounts { passwd, group }.resolve(&user);
        }
    }
}
