//! Which kubeconfig is used, and what a person can do if it cannot be.

use kube::config::{Kubeconfig, KubeconfigError};

use super::chain;
use crate::args::cluster::Access;
use crate::error::{Code, Error, Result};
use crate::settings::{Origin, Settings};

/// The kubeconfig that a command line means.
pub(super) struct Look {
    /// The file that a flag or a setting names; none: `KUBECONFIG` or the default path.
    pub(super) file: Option<String>,
    context: Option<String>,
    /// Path or paths, as they were given.
    path: String,
    /// What named it.
    origin: String,
}

impl Look {
    pub(super) fn new(settings: &Settings, access: &Access) -> Result<Self> {
        let flag = access.kubeconfig.as_ref().map(|path| path.display().to_string());
        let context = settings.value("context", access.context.as_deref())?;
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
        let read = match &self.file {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        error_shown.hint(self.remedy(error, read.ok()))
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

/// Whether there is no file.
pub(super) fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::ReadConfig(source, _) => source.kind() == std::io::ErrorKind::NotFound,
        error => matches!(error, KubeconfigError::FindPath),
    }
}
