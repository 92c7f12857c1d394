//! `/etc/inittab` of an image as services: what `-use-inittab` of the older tool keeps.

use neonvm_types::guest::{Command, Service};

use crate::spec::start;

/// What could not be taken over, for people.
pub type Skipped = String;

/// The services of an inittab as BusyBox reads it: `terminal:ignored:action:process`. They run as root.
pub fn services(text: &str) -> (Vec<Service>, Vec<Skipped>) {
    let (mut services, mut skipped) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match entry(line) {
            Ok((start, process)) => services.push(Service {
                name: format!("inittab-{number}"),
                user: "root".to_owned(),
                start,
                command: Command::Shell(process.to_owned()),
            }),
            Err(why) => skipped.push(format!("/etc/inittab of the image, line {number}: {why}")),
        }
    }
    (services, skipped)
}

fn entry(line: &str) -> Result<(neonvm_types::guest::Start, &str), String> {
    let mut fields = line.splitn(4, ':');
    let (Some(terminal), Some(_), Some(action), Some(process)) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err("expected terminal:levels:action:process".to_owned());
    };
    if !terminal.is_empty() {
        return Err(format!(
            "a process on terminal {terminal:?} is left out: the guest has its own login there"
        ));
    }
    let process = process.trim_start_matches('-').trim();
    if process.is_empty() || process.contains('\0') {
        return Err("no process".to_owned());
    }
    Ok((start(action).ok_or_else(|| format!("unknown action {action:?}"))?, process))
}

#[cfg(test)]
mod tests {
    use neonvm_types::guest::Start;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_busybox_become_services() {
        let text = "# comment\n::sysinit:cgconfigparser -l /etc/cgconfig.conf -s 1664\n\n\
                    ::respawn:su -p postgres -c 'run: it'\nttyS0::respawn:/sbin/getty 115200 ttyS0\n::dance:x\n::once\n";
        let (services, skipped) = services(text);
        let read: Vec<_> = services.iter().map(|service| (service.name.as_str(), service.start)).collect();
        assert_eq!(read, [("inittab-2", Start::Sysinit), ("inittab-4", Start::Respawn)]);
        assert_eq!(services[1].command, Command::Shell("su -p postgres -c 'run: it'".into()));
        assert_eq!(skipped.len(), 3);
        assert!(skipped[0].contains("line 5") && skipped[1].contains("\"dance\""), "{skipped:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text: String) {
            let (services, skipped) = services(&text);
            prop_assert!(services.len() + skipped.len() <= text.lines().count());
        }
    }
}
