//! What a command knows of the world around it; tests make their own.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

#[expect(clippy::disallowed_methods, reason = "nothing is written")]
pub(crate) fn terminals() -> (bool, bool) {
    (std::io::stdout().is_terminal(), std::io::stderr().is_terminal())
}

/// Environment variables, terminal, and where the program is.
#[derive(Clone, Debug, Default)]
pub struct Env {
    pub vars: BTreeMap<String, String>,
    pub stdout_terminal: bool,
    pub stderr_terminal: bool,
    /// The directory of this program.
    pub beside: Option<PathBuf>,
}

impl Env {
    #[must_use]
    pub fn of_process() -> Self {
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let (stdout_terminal, stderr_terminal) = terminals();
        Self {
            vars: std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect(),
            stdout_terminal,
            stderr_terminal,
            beside: std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_path_buf())),
        }
    }

    /// A variable that is set and not empty.
    #[must_use]
    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A base directory: the variable, or `below` under the home directory.
    #[must_use]
    pub fn directory(&self, variable: &str, below: &str) -> PathBuf {
        match self.var(variable) {
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(self.var("HOME").unwrap_or(".")).join(below),
        }
    }

    /// The file of a program in `PATH`.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        // Some tools of administrators are not in every user's path.
        let path = format!("{}:/usr/local/sbin:/usr/sbin:/sbin", self.var("PATH").unwrap_or_default());
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
    }
}
