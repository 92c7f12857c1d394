//! `vm cp`

use super::ssh::session::{Client, Door};
use crate::args::vm::Cp;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

/// Copies files with scp.
pub(super) fn run(env: &Env, settings: &Settings, args: &Cp) -> Result<Report> {
    let name = machine(&args.paths)?;
    let sources = args.paths.split_last().map(|(_, sources)| sources).unwrap_or_default();
    if let Some(folder) =
        sources.iter().find(|path| !args.recursive && side(path).is_none() && is_folder(path))
    {
        return Err(Error::new(Code::Usage, format!("{folder} is a directory"))
            .hint(format!("copy it with what is in it: neonctl vm cp -r {}", args.paths.join(" "))));
    }
    let door = Door { name: &name, port: 22, identity: args.identity.as_deref(), place: &args.place };
    let mut client = Client::open(env, settings, "scp", &door)?;
    if args.recursive {
        client.command.arg("-r");
    }
    let words = args.paths.iter().map(|path| match path.split_once(':') {
        Some((_, there)) if side(path).is_some() => format!("{}@{name}:{there}", args.login),
        // scp takes a colon before the first slash for the end of a host name.
        _ if path.contains(':') && !path.starts_with(['/', '.']) => format!("./{path}"),
        _ => path.clone(),
    });
    let words = std::iter::once("--".to_owned()).chain(words).collect();
    Ok(client.report(words))
}

fn is_folder(path: &str) -> bool {
    std::path::Path::new(path).is_dir()
}

/// The VM of a path, if it is one in a VM: `NAME:PATH`, where the name has no slash.
fn side(path: &str) -> Option<&str> {
    let (name, _) = path.split_once(':')?;
    (!name.is_empty() && !name.contains('/') && !name.starts_with('.')).then_some(name)
}

/// The VM that the paths name. All sources are on one side, the target on the other.
fn machine(paths: &[String]) -> Result<String> {
    let wrong = |text: &str| {
        Err(Error::new(Code::Usage, text)
            .hint("write neonctl vm cp FILE NAME:PATH or neonctl vm cp NAME:PATH FILE; a local name with a colon as ./NAME"))
    };
    let Some((target, sources)) = paths.split_last() else { return wrong("no paths are given") };
    let first = sources.first().and_then(|source| side(source));
    if sources.iter().any(|source| side(source) != first) {
        return wrong("the sources are not all in one place");
    }
    match (first, side(target)) {
        (Some(name), None) | (None, Some(name)) => Ok(name.to_owned()),
        (None, None) => wrong("none of the paths is in a VM"),
        (Some(_), Some(_)) => wrong("both sides are in VMs; copy in two steps"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_is_a_vm() {
        let of = |paths: &[&str]| machine(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["a", "b", "pg:/tmp"]).unwrap(), "pg");
        assert_eq!(of(&["pg:/a", "pg:/b", "."]).unwrap(), "pg");
        assert_eq!(of(&["./a:b", "pg:"]).unwrap(), "pg");
        for paths in
            [&["a", "b"][..], &["pg:/a", "pg:/b"], &["pg:/a", "b", "c"], &["p:/a", "q:/a", "c"], &["a"]]
        {
            assert_eq!(of(paths).unwrap_err().code, Code::Usage, "{paths:?}");
        }
    }
}
