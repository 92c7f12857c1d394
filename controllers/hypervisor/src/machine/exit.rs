//! How QEMU ended.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QemuExit {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal, if one ended it.
    pub signal: Option<i32>,
    /// Whether the guest requested the end, and QEMU's `ShutdownCause`; `None`: QEMU reported none, so it crashed or was killed.
    pub shutdown: Option<(bool, String)>,
    /// The guest's kernel panicked.
    pub guest_panicked: bool,
    /// The accelerator could not run the guest.
    pub internal_error: bool,
    /// The last lines of its standard error, oldest first.
    pub stderr: Vec<String>,
    /// The line of its standard error that it printed as it ended, if there is one.
    pub last_line: Option<String>,
}

/// Signals that a process gets by its own fault, after which its last line may be the reason. Others come from elsewhere.
const OWN_FAULT: [i32; 7] =
    [libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Name of a signal, if it is one that ends programs.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        _ => return None,
    })
}

impl QemuExit {
    /// The guest switched the machine off.
    #[must_use]
    pub fn is_power_off(&self) -> bool {
        self.is_cause(&["guest-shutdown"])
    }

    /// The guest wanted a reboot.
    #[must_use]
    pub fn is_reboot(&self) -> bool {
        self.is_cause(&["guest-reset"])
    }

    /// QEMU ended on request: by [`super::Machine::quit`] or a signal that it handles.
    #[must_use]
    pub fn is_quit(&self) -> bool {
        self.is_cause(&["host-qmp-quit", "host-signal"])
    }

    /// The line that gives the reason: not what it printed before another process ended it.
    fn reason(&self) -> Option<&str> {
        let own = self.signal.is_none_or(|signal| OWN_FAULT.contains(&signal));
        self.last_line.as_deref().filter(|_| own)
    }

    fn is_cause(&self, causes: &[&str]) -> bool {
        !self.guest_panicked
            && self.shutdown.as_ref().is_some_and(|(_, cause)| causes.contains(&cause.as_str()))
    }
}

impl std::fmt::Display for QemuExit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.code, self.signal) {
            (_, Some(signal)) => {
                write!(formatter, "QEMU was ended by signal {signal}")?;
                if let Some(name) = signal_name(signal) {
                    write!(formatter, " ({name})")?;
                }
            }
            (Some(code), None) => write!(formatter, "QEMU ended with status {code}")?,
            (None, None) => formatter.write_str("QEMU ended")?,
        }
        if self.internal_error {
            formatter.write_str(" after its accelerator had failed")?;
        } else if self.guest_panicked {
            formatter.write_str(" after the guest's kernel had panicked")?;
        } else if let Some((_, cause)) = &self.shutdown {
            write!(formatter, " ({cause})")?;
        }
        if let Some(line) = self.reason() {
            write!(formatter, ": {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_of_an_end_are_distinguished() {
        let shutdown = |cause: &str| Some((true, cause.to_owned()));
        let off = QemuExit { code: Some(0), shutdown: shutdown("guest-shutdown"), ..QemuExit::default() };
        assert!(off.is_power_off() && !off.is_reboot());
        assert_eq!(off.to_string(), "QEMU ended with status 0 (guest-shutdown)");
        let oops = |code, signal| QemuExit {
            code,
            signal,
            stderr: vec!["a probe failed".into(), "oops".into()],
            last_line: Some("oops".into()),
            ..QemuExit::default()
        };
        let killed = oops(None, Some(9));
        assert!(!killed.is_power_off() && !killed.is_quit());
        assert_eq!(killed.to_string(), "QEMU was ended by signal 9 (SIGKILL)");
        assert_eq!(oops(None, Some(6)).to_string(), "QEMU was ended by signal 6 (SIGABRT): oops");
        assert_eq!(oops(None, Some(40)).to_string(), "QEMU was ended by signal 40");
        assert_eq!(oops(Some(1), None).to_string(), "QEMU ended with status 1: oops");
        let silent = QemuExit { last_line: None, ..oops(Some(1), None) };
        assert_eq!(silent.to_string(), "QEMU ended with status 1", "old lines are no reason");
        let panicked = QemuExit { guest_panicked: true, code: Some(1), ..off };
        assert!(!panicked.is_power_off());
        assert_eq!(panicked.to_string(), "QEMU ended with status 1 after the guest's kernel had panicked");
    }
}
