//! `vm cp`

use super::ssh::session::{Client, Door};
use crate::args::vm::Cp;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

pub(super) fn run(env: &Env, settings: &Settings, args: &Cp) -> Result<Report> {
    let name = machine(&args.paths)?;
    folders(&args.paths, args.recursive)?;
    let door = Door { name: &name, port: 22, identity: args.identity.as_deref() };
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

/// Refuses directories among the sources here, unless they are copied with what is in them.
fn folders(paths: &[String], recursive: bool) -> Result<()> {
    let sources = paths.split_last().map(|(_, sources)| sources).unwrap_or_default();
    let mut folders = sources.iter().filter(|path| !recursive && side(path).is_none() && is_folder(path));
    folders.next().map_or(Ok(()), |folder| {
        Err(Error::new(Code::Usage, format!("{folder} is a directory"))
            .hint(format!("copy it with what is in it: neonctl vm cp -r {}", paths.join(" "))))
    })
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
    fn a_directory_is_copied_with_its_flag_only() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, file) = (folder.path().display().to_string(), folder.path().join("f"));
        std::fs::write(&file, "").unwrap();
        let file = file.display().to_string();
        let refused = |paths: &[&str], recursive| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            folders(&paths, recursive).err()
        };
        let error = refused(&[&file, &folder, "pg:/tmp"], false).unwrap();
        assert_eq!((error.code, error.message), (Code::Usage, format!("{folder} is a directory")));
        let hint = format!("neonctl vm cp -r {file} {folder} pg:/tmp");
        assert!(error.hint.unwrap().ends_with(&hint));
        assert_eq!(refused(&[&folder, "pg:/tmp"], true), None);
        // The target may be one, and what is in the VM is not known here.
        assert_eq!(refused(&["pg:/var/log", &folder], false), None);
        assert_eq!(refused(&[&file, "pg:/tmp"], false), None);
    }

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
