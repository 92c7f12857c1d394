//! `su-exec <user>[:<group>] <program> [argument…]`: a program as another user, in place of this one.

use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use super::{become_program, refuse};
use crate::config::{Account, Accounts};

/// Becomes the user, then the program.
pub(super) fn run(arguments: &[String]) -> u8 {
    let [user, program, arguments @ ..] = arguments else {
        return refuse("usage: su-exec <user>[:<group>] <program> [argument…]");
    };
    let account = match Accounts::read().resolve(user) {
        Ok(account) => account,
        Err(error) => return refuse(&format!("su-exec: {error}")),
    };
    if let Err(error) = change(&account) {
        return refuse(&format!("su-exec: become {user}: {error}"));
    }
    let mut command = Command::new(program);
    command.args(arguments).env("HOME", &account.home);
    become_program(command)
}

fn change(account: &Account) -> std::io::Result<()> {
    let gid = Gid::from_raw(account.gid);
    let mut groups: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
    if !groups.contains(&gid) {
        groups.push(gid);
    }
    // This process has one thread, and the program begins with what it has.
    set_thread_groups(&groups)?;
    set_thread_gid(gid)?;
    Ok(set_thread_uid(Uid::from_raw(account.uid))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(run(&words("root")), 1);
        assert_eq!(run(&words("no-such-user true")), 1);
    }
}
