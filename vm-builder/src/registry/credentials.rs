//! Logins for registries from the files of Docker and Podman.
//!
//! Both tools share one format: `auths` by registry (Podman: also by repository), `credHelpers` by registry and
//! `credsStore` for all, which name programs that keep the logins.

pub(super) mod helper;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use neonvm_types::objects;
use serde::Deserialize;

use crate::cache::read_limited;
use crate::reference::{DOCKER_HUB, Reference};
use crate::source::{Error, Login, Network};

/// The name under which Docker keeps the login of Docker Hub.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";
/// Largest file, in bytes.
const FILE_LIMIT: u64 = 4 << 20;

/// The files in which logins of registries are looked up, most important first: `$REGISTRY_AUTH_FILE`,
/// `$XDG_RUNTIME_DIR/containers/auth.json`, `$XDG_CONFIG_HOME/containers/auth.json` (or below `~/.config`),
/// `$DOCKER_CONFIG/config.json`, and `~/.docker/config.json`. `environment` gives variables by name.
pub fn auth_files(environment: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let directory = |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = directory("HOME");
    let config = directory("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
    [
        directory("REGISTRY_AUTH_FILE"),
        directory("XDG_RUNTIME_DIR").map(|path| path.join("containers/auth.json")),
        config.map(|path| path.join("containers/auth.json")),
        directory("DOCKER_CONFIG").map(|path| path.join("config.json")),
        home.map(|path| path.join(".docker/config.json")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The credentials for a server that requires authentication.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Anonymous,
    Password(Login),
    IdentityToken(String),
}

/// Credentials, and where they are from.
pub(super) struct Found {
    pub(super) credentials: Credentials,
    /// For people: `the login in /home/x/.docker/config.json`.
    pub(super) origin: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// Looks for a login of a repository.
pub(super) async fn find(reference: &Reference, network: &Network) -> Result<Found, Error> {
    if let Some(login) = &network.login {
        let credentials = Credentials::Password(login.clone());
        return Ok(Found { credentials, origin: "the login given".into() });
    }
    let mut without = Vec::new();
    for logins in &network.logins {
        let problem = match logins.content.as_deref().map(objects::from_slice::<File>) {
            Ok(Ok(file)) => match file.login(reference) {
                Some(credentials) => {
                    return Ok(Found { credentials, origin: format!("the login in {}", logins.name) });
                }
                None => format!("has none for {}", reference.registry()),
            },
            // Nothing of the content may get into the message: it holds secrets.
            Ok(Err(error)) => format!("cannot be read at line {}", error.line()),
            Err(problem) => problem.clone(),
        };
        without.push(format!("{} {problem}", logins.name));
    }
    for path in &network.auth_files {
        if let Some(credentials) = in_file(path, reference).await? {
            let place = network.files_name.clone().unwrap_or_else(|| path.display().to_string());
            return Ok(Found { credentials, origin: format!("the login in {place}") });
        }
    }
    let files: Vec<_> = network.auth_files.iter().map(|path| path.display().to_string()).collect();
    let files = network.files_name.clone().unwrap_or_else(|| files.join(", "));
    let origin = match (without.is_empty(), files.is_empty()) {
        (true, true) => "no login was given".into(),
        (true, false) => format!("no login was found in {files}"),
        (false, _) => format!("no login was found: {}", without.join("; ")),
    };
    Ok(Found { credentials: Credentials::Anonymous, origin })
}

async fn in_file(path: &Path, reference: &Reference) -> Result<Option<Credentials>, Error> {
    let bytes = match read_limited(path, FILE_LIMIT) {
        Ok(bytes) => bytes,
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(Error::io("read", path, error)),
    };
    // Nothing of the content may get into the message: it holds secrets.
    let file: File = objects::from_slice(&bytes).map_err(|error| Error::Malformed {
        what: format!("login file {}", path.display()),
        problem: format!("line {} is not as expected", error.line()),
    })?;
    match file.of_helper(reference).await? {
        Some(credentials) => Ok(Some(credentials)),
        None => Ok(file.login(reference)),
    }
}

impl File {
    /// The login that a program keeps.
    async fn of_helper(&self, reference: &Reference) -> Result<Option<Credentials>, Error> {
        let names = names(reference);
        let registry = names.last().map(String::as_str).unwrap_or_default();
        let helper_key =
            if registry == DOCKER_HUB { DOCKER_HUB_KEY.to_owned() } else { reference.registry().to_owned() };
        let own = self.cred_helpers.iter().find(|(name, _)| plain(name) == registry);
        if let Some((name, program)) = own {
            let key = if registry == DOCKER_HUB { helper_key.as_str() } else { name };
            return helper::ask(program, key).await;
        }
        match self.creds_store.as_deref().filter(|program| !program.is_empty()) {
            Some(program) => helper::ask(program, &helper_key).await,
            None => Ok(None),
        }
    }

    fn login(&self, reference: &Reference) -> Option<Credentials> {
        names(reference).iter().find_map(|name| {
            let found = self.auths.iter().filter(|(key, _)| plain(key) == name);
            found.filter_map(|(_, auth)| auth.credentials()).next()
        })
    }
}

/// The keys under which a login may be, most exact first: repository, its parents, registry.
fn names(reference: &Reference) -> Vec<String> {
    let full = format!("{}/{}", reference.registry(), reference.repository());
    let mut names = vec![full.clone()];
    let mut rest = full.as_str();
    while let Some((parent, _)) = rest.rsplit_once('/') {
        names.push(parent.to_owned());
        rest = parent;
    }
    names
}

/// A key as a name: without scheme and version of the interface.
fn plain(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key);
    match key {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        key => key,
    }
}

impl Auth {
    fn credentials(&self) -> Option<Credentials> {
        if !self.identitytoken.is_empty() {
            return Some(Credentials::IdentityToken(self.identitytoken.clone()));
        }
        if !self.username.is_empty() {
            let (username, password) = (self.username.clone(), self.password.clone());
            return Some(Credentials::Password(Login { username, password }));
        }
        let bytes = base64::engine::general_purpose::STANDARD.decode(self.auth.trim()).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        // Docker pads with NULs on some systems.
        let (username, password) = text.trim_end_matches('\0').split_once(':')?;
        let login = Login { username: username.into(), password: password.into() };
        (!login.username.is_empty()).then_some(Credentials::Password(login))
    }
}
