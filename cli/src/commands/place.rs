//! Where images, kernels and the guest program are.

use std::path::{Path, PathBuf};

use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::settings::Settings;

pub(crate) fn images(env: &Env) -> PathBuf {
    env.directory("XDG_DATA_HOME", ".local/share").join("neonvm/images")
}

pub(super) fn kernels(env: &Env) -> PathBuf {
    env.directory("XDG_DATA_HOME", ".local/share").join("neonvm/kernels")
}

pub(super) const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

pub(super) fn cache(env: &Env, flag: Option<&Path>) -> PathBuf {
    flag.map_or_else(|| env.directory("XDG_CACHE_HOME", ".cache").join("neonvm"), Path::to_owned)
}

/// The guest program for an architecture: as given, as configured, beside this program, or in `PATH`.
pub(super) fn guest(
    env: &Env,
    settings: &Settings,
    flag: Option<&Path>,
    architecture: &str,
) -> Result<PathBuf> {
    let name = format!("neonvm-guest-{architecture}");
    let missing = |text: String| {
        Error::new(Code::Conflict, text).hint(format!(
            "put {name} next to neonctl or into PATH, or set its path with --guest or NEONCTL_GUEST"
        ))
    };
    let given = match flag {
        Some(path) => Some(path.to_owned()),
        None => settings.value("guest", None)?.map(PathBuf::from),
    };
    if let Some(path) = given {
        let text = format!("cannot find the guest program at {}", path.display());
        return if path.is_file() { Ok(path) } else { Err(missing(text)) };
    }
    let beside = env.beside.as_ref().map(|directory| directory.join(&name)).filter(|path| path.is_file());
    beside.or_else(|| env.program(&name)).ok_or_else(|| missing(format!("cannot find the program {name}")))
}

/// Bytes as people write them: `10Gi`, `512M`, `1073741824`; also `mkfs`' `1G`, which means 1Gi.
pub(super) fn size(flag: &str, text: &str) -> Result<u64> {
    let wrong = || {
        Error::new(Code::Usage, format!("{text:?} is not valid for {flag}"))
            .hint("write a number of bytes with Ki, Mi, Gi or Ti, such as 10Gi")
    };
    let parsed = neonvm_builder::size::parse(text).ok_or_else(wrong)?;
    Ok(parsed)
}
