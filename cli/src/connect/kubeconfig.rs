//! Which kubeconfig is used, and what a person can do if it cannot be.

use std::path::PathBuf;

use kube::config::{Kubeconfig, KubeconfigError};

use super::chain;
use crate::error::{Code, Error, Result};
use crate::settings::{Origin, Settings};

/// The kubeconfig that a command line means.
pub(super) struct Look {
    /// The file that a flag or a setting names; none: `KUBECONFIG` or the default path.
    pub(super) file: Option<String>,
    context: Option<String>,
    path: String,
    /// What named it.
    origin: String,
}

impl Look {
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        let place = settings.place();
        let flag = place.kubeconfig.as_ref().map(|path| path.display().to_string());
        let context = settings.value("context", place.context.as_deref())?;
        let file = settings.value("kubeconfig", flag.as_deref())?;
        let origin = match (&flag, settings.find("kubeconfig")?.1) {
            (Some(_), _) => "--kubeconfig".to_owned(),
            (None, Origin::Environment(variable)) => variable,
            (None, Origin::File) => settings.path().display().to_string(),
            (None, Origin::Builtin) => String::new(),
        };
        let (path, origin) = match (&file, settings.env().var("KUBECONFIG")) {
            (Some(path), _) => (path.clone(), origin),
            (None, Some(paths)) => (paths.to_owned(), "KUBECONFIG".to_owned()),
            (None, None) => {
                let path = settings.env().directory("", ".kube").join("config");
                (path.display().to_string(), "the default path".to_owned())
            }
        };
        Ok(Self { file, context, path, origin })
    }

    /// The error of a kubeconfig that cannot be used.
    pub(super) fn refused(&self, error: &KubeconfigError) -> Error {
        let path = match error {
            KubeconfigError::ReadConfig(_, path) => path.display().to_string(),
            _ => self.path.clone(),
        };
        let origin = &self.origin;
        let text = if path == self.path && *origin != "the default path" {
            format!("cannot use the kubeconfig {path} of {origin}")
        } else {
            format!("cannot use the kubeconfig {path}, {origin}")
        };
        let error_shown = chain(Error::new(Code::Usage, text), error);
        error_shown.hint(self.remedy(error, read(self.file.as_deref()).ok()))
    }

    fn remedy(&self, error: &KubeconfigError, read: Option<Kubeconfig>) -> String {
        let another =
            "name another file with --kubeconfig; that of a local cluster: neonctl local kubeconfig";
        let Some(read) = read else {
            return match (is_missing(error), &self.file) {
                (true, None) => "start a local cluster: eval \"$(neonctl local up)\"".to_owned(),
                (true, Some(_)) => another.to_owned(),
                (false, _) => "correct the file, or name another with --kubeconfig".to_owned(),
            };
        };
        let wanted = self.context.as_ref().or(read.current_context.as_ref());
        let known: Vec<&str> = read.contexts.iter().map(|one| one.name.as_str()).collect();
        match wanted {
            _ if known.is_empty() => format!("the file has no contexts; {another}"),
            Some(name) if !known.contains(&name.as_str()) => {
                format!("there is no context {name:?}; there are: {}", known.join(", "))
            }
            None => format!("choose a context with --context; there are: {}", known.join(", ")),
            Some(name) => format!("correct context {name:?} of the file, or choose another with --context"),
        }
    }
}

/// The kubeconfig of a file, or of those in `KUBECONFIG`, or at the default path. As with kubectl, files of a list that are missing are left
/// out; if all are, that is the error.
pub(crate) fn read(file: Option<&str>) -> std::result::Result<Kubeconfig, KubeconfigError> {
    match (file, std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty())) {
        (Some(path), _) => Kubeconfig::read_from(path),
        (None, Some(paths)) => merged(std::env::split_paths(&paths)),
        (None, None) => Kubeconfig::read(),
    }
}

fn merged(paths: impl Iterator<Item = PathBuf>) -> std::result::Result<Kubeconfig, KubeconfigError> {
    let (mut all, mut missing) = (None::<Kubeconfig>, None);
    for path in paths.filter(|path| !path.as_os_str().is_empty()) {
        match Kubeconfig::read_from(&path) {
            Ok(read) => {
                all = Some(match all {
                    Some(before) => before.merge(read)?,
                    None => read,
                });
            }
            Err(error) if is_missing(&error) => missing = missing.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    all.ok_or_else(|| missing.unwrap_or(KubeconfigError::FindPath))
}

pub(super) fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::ReadConfig(source, _) => source.kind() == std::io::ErrorKind::NotFound,
        error => matches!(error, KubeconfigError::FindPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_of_a_list_are_left_out_as_with_kubectl() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let text = |name: &str| {
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: {name}\ncontexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n"
            )
        };
        std::fs::write(at("a"), text("a")).unwrap();
        std::fs::write(at("b"), text("b")).unwrap();
        std::fs::write(at("bad"), "contexts: 7\n").unwrap();
        let names = |files: &[&str]| {
            let read =
                merged(files.iter().map(|name| if name.is_empty() { PathBuf::new() } else { at(name) }));
            let read = read.map_err(|error| is_missing(&error))?;
            let contexts = read.contexts.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(" ");
            Ok(format!("{} of {contexts}", read.current_context.unwrap_or_default()))
        };
        assert_eq!(names(&["none", "a"]), Ok("a of a".to_owned()));
        assert_eq!(names(&["a", "none", "b", ""]), Ok("a of a b".to_owned()));
        assert_eq!(names(&["b", "a"]), Ok("b of b a".to_owned()));
        assert_eq!(names(&["none", "nothing"]), Err(true));
        assert_eq!(names(&[""]), Err(true));
        assert_eq!(names(&["a", "bad"]), Err(false));
    }
}
