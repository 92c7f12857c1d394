//! Settings and where they come from: flag, `NEONCTL_<FLAG>`, configuration file, built-in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_builder::out;
use toml_edit::DocumentMut;

use crate::args::Global;
use crate::args::place::Place;
use crate::env::Env;
use crate::error::{Code, Error, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    #[default]
    Off,
    Requests,
    Bodies,
}

impl Verbosity {
    #[must_use]
    pub fn of(count: u8) -> Self {
        match count {
            0 => Self::Off,
            1 => Self::Requests,
            _ => Self::Bodies,
        }
    }
}

/// A setting that may stand in the configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    /// Built-in value; empty if there is none.
    pub builtin: &'static str,
    pub about: &'static str,
    check: fn(&str) -> bool,
}

fn any(_: &str) -> bool {
    true
}

fn color(value: &str) -> bool {
    matches!(value, "auto" | "always" | "never")
}

fn truth(value: &str) -> bool {
    matches!(value, "true" | "false")
}

fn is_duration(value: &str) -> bool {
    duration(value).is_some()
}

fn output(value: &str) -> bool {
    crate::render::Format::parse(value).is_ok()
}

/// Whether this can name a cluster, and so a directory: lower-case letters, digits and dashes.
pub(crate) fn is_cluster_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.len() <= 40
        && name.chars().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Every setting.
pub const KEYS: &[Key] = &[
    Key { name: "color", builtin: "auto", about: "colours: auto, always or never", check: color },
    Key { name: "context", builtin: "", about: "context of the kubeconfig", check: any },
    Key { name: "data-dir", builtin: "", about: "directory of local clusters", check: any },
    Key { name: "guest", builtin: "", about: "guest program to put on disks", check: any },
    Key { name: "kubeconfig", builtin: "", about: "kubeconfig file", check: any },
    Key {
        name: "name",
        builtin: "local",
        about: "local cluster; a name is up to 40 lower-case letters, digits and dashes",
        check: is_cluster_name,
    },
    Key { name: "neond", builtin: "", about: "program that runs local clusters", check: any },
    Key {
        name: "nodes",
        builtin: "1",
        about: "number of nodes of a local cluster; 0 starts only an API server",
        check: |value| value.parse::<u8>().is_ok(),
    },
    Key { name: "output", builtin: "table", about: "output format", check: output },
    Key { name: "quiet", builtin: "false", about: "results and errors only", check: truth },
    Key {
        name: "request-timeout",
        builtin: "10s",
        about: "time for one request, such as 500ms or 10s",
        check: is_duration,
    },
    Key {
        name: "timeout",
        builtin: "30s",
        about: "time for a local cluster to start or stop, such as 30s or 5m",
        check: is_duration,
    },
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Environment(String),
    File,
    Builtin,
}

/// The configuration file, read, and the environment.
#[derive(Clone, Debug)]
pub struct Settings {
    path: PathBuf,
    file: DocumentMut,
    env: Env,
    flags: Global,
    verbosity: Verbosity,
}

impl Settings {
    /// Reads the configuration file, if there is one.
    ///
    /// # Errors
    /// If it cannot be read or holds something unknown.
    pub fn load(env: &Env) -> Result<Self> {
        let path = env.directory("XDG_CONFIG_HOME", ".config").join("neonctl/config.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::file("read", &path, &error)),
        };
        let bad =
            |cause: String| Error::new(Code::Usage, format!("cannot use {}", path.display())).cause(cause);
        let file: DocumentMut =
            text.parse().map_err(|error: toml_edit::TomlError| bad(error.message().to_owned()))?;
        for (name, item) in file.iter() {
            let key = key(name).map_err(|error| bad(error.message))?;
            let value =
                plain(item).ok_or_else(|| bad(format!("{name} is not a string, number or boolean")))?;
            check(key, &value).map_err(|error| bad(error.message))?;
        }
        Ok(Self { path, file, env: env.clone(), flags: Global::default(), verbosity: Verbosity::default() })
    }

    #[must_use]
    pub fn with_flags(self, flags: &Global) -> Self {
        Self { verbosity: Verbosity::of(flags.verbose), flags: flags.clone(), ..self }
    }

    #[must_use]
    pub fn place(&self) -> &Place {
        &self.flags.place
    }

    #[must_use]
    pub fn output(&self) -> Option<&str> {
        self.flags.output.as_deref()
    }

    #[must_use]
    pub fn omits_headers(&self) -> bool {
        self.flags.no_headers
    }

    #[must_use]
    pub fn with_verbosity(self, verbosity: Verbosity) -> Self {
        Self { verbosity, ..self }
    }

    #[must_use]
    pub fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A value and where it comes from, below any flag.
    ///
    /// # Errors
    /// If the environment holds an invalid one.
    pub fn find(&self, name: &str) -> Result<(String, Origin)> {
        let key = key(name)?;
        let variable = format!("NEONCTL_{}", name.to_uppercase().replace('-', "_"));
        if let Some(value) = self.env.var(&variable) {
            check(key, value).map_err(|error| error.cause(format!("from {variable}")))?;
            return Ok((value.to_owned(), Origin::Environment(variable)));
        }
        match self.file.get(name).and_then(plain) {
            Some(value) => Ok((value, Origin::File)),
            None => Ok((key.builtin.to_owned(), Origin::Builtin)),
        }
    }

    /// The value of a flag, or what stands behind it; `None` if nothing does.
    ///
    /// # Errors
    /// If the value is not valid.
    pub fn value(&self, name: &str, flag: Option<&str>) -> Result<Option<String>> {
        if let Some(value) = flag {
            check(key(name)?, value)?;
            return Ok(Some(value.to_owned()));
        }
        Ok(Some(self.find(name)?.0).filter(|value| !value.is_empty()))
    }

    /// As [`Self::value`], for a duration.
    ///
    /// # Errors
    /// If the value is not valid.
    pub fn duration(&self, name: &str, flag: Option<&str>) -> Result<Duration> {
        let value = self.value(name, flag)?.unwrap_or_default();
        duration(&value).ok_or_else(|| Error::new(Code::Usage, format!("{value:?} is not a duration")))
    }

    /// Writes a value into the configuration file; comments stay.
    ///
    /// # Errors
    /// If it is not valid or the file cannot be written.
    pub fn store(&mut self, name: &str, value: &str) -> Result<()> {
        check(key(name)?, value)?;
        self.file.insert(name, toml_edit::value(value));
        self.write()
    }

    /// Removes a value from the configuration file; other comments stay. Returns whether it was there.
    ///
    /// # Errors
    /// If there is no such setting or the file cannot be written.
    pub fn remove(&mut self, name: &str) -> Result<bool> {
        key(name)?;
        let was_there = self.file.remove(name).is_some();
        if was_there {
            self.write()?;
        }
        Ok(was_there)
    }

    fn write(&self) -> Result<()> {
        let failed = |error: std::io::Error| Error::file("write", &self.path, &error);
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        out::text(&self.path, &self.file.to_string()).map_err(failed)
    }
}

fn plain(item: &toml_edit::Item) -> Option<String> {
    let value = item.as_value()?;
    value
        .as_str()
        .map(str::to_owned)
        .or_else(|| value.as_bool().map(|value| value.to_string()))
        .or_else(|| value.as_integer().map(|value| value.to_string()))
}

fn key(name: &str) -> Result<&'static Key> {
    let names = || KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        Error::new(Code::Usage, format!("there is no setting {name:?}"))
            .hint(format!("settings are {}", names()))
    })
}

fn check(key: &Key, value: &str) -> Result<()> {
    if (key.check)(value) {
        return Ok(());
    }
    Err(Error::new(Code::Usage, format!("{value:?} is not valid for {}: {}", key.name, key.about)))
}

/// `250ms`, `30s`, `5m`, `2h`; at most a day.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let millis = number.checked_mul(unit)?;
    (millis <= 86_400_000).then(|| Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(directory: &Path, more: &[(&str, &str)]) -> Env {
        let mut env = Env::default();
        env.vars.insert("XDG_CONFIG_HOME".into(), directory.display().to_string());
        env.vars.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        env
    }

    #[test]
    fn flag_beats_environment_beats_file_beats_builtin() {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::load(&env(home.path(), &[])).unwrap();
        assert_eq!(settings.find("timeout").unwrap(), ("30s".into(), Origin::Builtin));
        settings.store("timeout", "5s").unwrap();
        let settings = Settings::load(&env(home.path(), &[])).unwrap();
        assert_eq!(settings.find("timeout").unwrap(), ("5s".into(), Origin::File));
        let settings = Settings::load(&env(home.path(), &[("NEONCTL_TIMEOUT", "7s")])).unwrap();
        assert_eq!(
            settings.find("timeout").unwrap(),
            ("7s".into(), Origin::Environment("NEONCTL_TIMEOUT".into()))
        );
        assert_eq!(settings.duration("timeout", Some("9s")).unwrap(), Duration::from_secs(9));
    }

    #[test]
    fn comments_survive_a_change() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("neonctl")).unwrap();
        let file = home.path().join("neonctl/config.toml");
        std::fs::write(&file, "# mine\ncolor = \"never\" # please\n").unwrap();
        Settings::load(&env(home.path(), &[])).unwrap().store("name", "dev").unwrap();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "# mine\ncolor = \"never\" # please\nname = \"dev\"\n"
        );
    }

    #[test]
    fn a_removed_value_gives_way_to_the_builtin() {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::load(&env(home.path(), &[])).unwrap();
        assert!(!settings.remove("timeout").unwrap());
        assert!(!settings.path().exists(), "nothing is written without a change");
        settings.store("timeout", "5s").unwrap();
        settings.store("name", "dev").unwrap();
        assert!(settings.remove("timeout").unwrap());
        let settings = Settings::load(&env(home.path(), &[])).unwrap();
        assert_eq!(settings.find("timeout").unwrap(), ("30s".into(), Origin::Builtin));
        assert_eq!(settings.find("name").unwrap(), ("dev".into(), Origin::File));
        assert_eq!(settings.clone().remove("colour").unwrap_err().code, Code::Usage);
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::load(&env(home.path(), &[])).unwrap();
        assert_eq!(settings.store("colour", "never").unwrap_err().code, Code::Usage);
        assert_eq!(settings.store("timeout", "soon").unwrap_err().code, Code::Usage);
        assert!(
            duration("18446744073709551615h").is_none() && duration("").is_none() && duration("5").is_none()
        );
    }
}
