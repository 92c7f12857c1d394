//! From flags to how images are loaded, and from the builder's errors to ours.

use neonvm_builder::registry::auth_files;
use neonvm_builder::source::{self, Limits, Login, Network, Options, Platform, Pull};
use neonvm_builder::{engine, fragments, reference};

use super::place;
use crate::args::{Registry, RegistryAccess};
use crate::env::Env;
use crate::error::{Code, Error, Result};

pub(super) fn options(env: &Env, args: &Registry, arch: Option<&str>) -> Result<Options> {
    let mut options = Options::new(place::cache(env, args.cache_dir.as_deref()));
    if let Some(arch) = arch {
        options.platform = platform(arch)?;
    }
    options.pull = match args.pull.as_str() {
        "missing" => Pull::Missing,
        "never" => Pull::Never,
        _ => Pull::Always,
    };
    options.network = network(env, &args.access)?;
    options.limits = Limits {
        entries: args.max_entries,
        bytes: place::size("--max-bytes", &args.max_bytes)?,
        ratio: args.max_ratio,
        free: place::size("--min-free", &args.min_free)?,
        // Their names and attributes are in memory: 256 bytes each.
        metadata: options.limits.metadata.max(args.max_entries.saturating_mul(256)),
        ..options.limits
    };
    Ok(options)
}

pub(super) fn network(env: &Env, args: &RegistryAccess) -> Result<Network> {
    let login = match &args.username {
        None => None,
        Some(username) => {
            let missing = || {
                Error::new(Code::Usage, "--username needs a password")
                    .hint("set NEONCTL_REGISTRY_PASSWORD; all users of this host could read a flag")
            };
            let password = env.var("NEONCTL_REGISTRY_PASSWORD").ok_or_else(missing)?.to_owned();
            Some(Login { username: username.clone(), password })
        }
    };
    let auth_files = match &args.auth_file {
        Some(path) => vec![path.clone()],
        None => auth_files(&|name| env.var(name).map(str::to_owned)),
    };
    Ok(Network {
        insecure: args.insecure,
        ca_file: args.ca_file.clone(),
        parallel: args.parallel.max(1),
        auth_files,
        login,
        ..Network::default()
    })
}

/// `amd64`, `x86_64`, `amd64/v2`, `linux/arm64`, …
pub(super) fn platform(arch: &str) -> Result<Platform> {
    let has_os = arch.split('/').next().is_some_and(|first| first.eq_ignore_ascii_case("linux"));
    let text = if has_os { arch.to_owned() } else { format!("linux/{arch}") };
    text.parse::<Platform>()
        .ok()
        .filter(|platform| ["amd64", "arm64"].contains(&platform.architecture.as_str()))
        .ok_or_else(|| {
            Error::new(Code::Usage, format!("{arch:?} is not valid for --arch"))
                .hint("use amd64 or arm64, or with a variant amd64/v2")
        })
}

pub(super) fn load_error(attempt: &str, error: &source::Error) -> Error {
    with_hint(Error::new(code(error), attempt).cause(error.to_string()), error.hint())
}

pub(super) fn build_error(attempt: &str, error: &engine::Error) -> Error {
    let code = match error {
        engine::Error::Source(error) => code(error),
        engine::Error::Spec(_)
        | engine::Error::Fragments(fragments::Error::OfDockerfile)
        | engine::Error::NoOutput
        | engine::Error::PushWithoutTag
        | engine::Error::NoDirectory(_) => Code::Usage,
        engine::Error::Interrupted => Code::Interrupted,
        engine::Error::Guest { .. } => Code::Conflict,
        _ => Code::Failed,
    };
    let first = Error::new(code, attempt).cause(error.to_string());
    with_hint(error.causes().into_iter().fold(first, Error::cause), error.hint())
}

fn with_hint(error: Error, hint: Option<String>) -> Error {
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn code(error: &source::Error) -> Code {
    use source::Error as E;
    match error {
        E::Invalid(_) | E::Setting { .. } => Code::Usage,
        E::SourceMissing(_)
        | E::RepositoryNotFound { .. }
        | E::ManifestUnknown { .. }
        | E::ImageNotFound { .. }
        | E::NotCached(_) => Code::NotFound,
        E::Unauthorized { .. } => Code::Denied,
        E::Unreachable { .. } => Code::Unreachable,
        _ => Code::Failed,
    }
}

pub(super) fn reference(text: &str) -> Result<reference::Reference> {
    text.parse().map_err(|error: reference::Invalid| {
        Error::new(Code::Usage, error.to_string()).hint("write it as registry/name:tag")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_many_names() {
        for (text, expected) in [
            ("amd64", "linux/amd64"),
            ("x86_64", "linux/amd64"),
            ("X86-64", "linux/amd64"),
            ("linux/AArch64", "linux/arm64"),
            ("amd64/v3", "linux/amd64/v3"),
            ("Linux/x86_64/V2", "linux/amd64/v2"),
        ] {
            assert_eq!(platform(text).unwrap().to_string(), expected, "{text}");
        }
        for bad in ["", "riscv64", "windows/amd64", "armhf", "amd64/v2/x", "linux"] {
            let error = platform(bad).unwrap_err();
            assert!(error.message.contains("--arch"), "{bad}: {}", error.message);
        }
    }
}
