//! How QEMU ended.

/// How QEMU ended.
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

    fn is_cause(&self, causes: &[&str]) -> bool {
        !self.guest_panicked
            && self.shutdown.as_ref().is_some_and(|(_, cause)| causes.contains(&cause.as_str()))
    }
}

impl std::fmt::Display for QemuExit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.code, self.signal) {
            (_, Some(signal)) => write!(formatter, "QEMU was ended by signal {signal}")?,
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
        if let Some(line) = self.stderr.last() {
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
        let killed = QemuExit { signal: Some(9), stderr: vec!["oops".into()], ..QemuExit::default() };
        assert!(!killed.is_power_off() && !killed.is_quit());
        assert_eq!(killed.to_string(), "QEMU was ended by signal 9: oops");
        let panicked = QemuExit { guest_panicked: true, code: Some(1), ..off };
        assert!(!panicked.is_power_off());
        assert_eq!(panicked.to_string(), "QEMU ended with status 1 after the guest's kernel had panicked");
    }
}
