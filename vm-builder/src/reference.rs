//! Names of images in registries, as people write them: `postgres`, `postgres:16`, `ghcr.io/a/b@sha256:…`.
//!
//! A name without a host means Docker Hub, a name of one part there means its `library`, and a name without tag and
//! digest means the tag `latest`. An error names the part that is wrong.

mod digest;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

pub use digest::{Digest, Hasher};

/// The registry that a name without a host means.
pub const DOCKER_HUB: &str = "docker.io";
/// Longest repository name, in bytes.
const REPOSITORY_LIMIT: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {part} {text:?}: {problem}")]
pub struct Invalid {
    /// Which part is wrong: `reference`, `registry`, `repository`, `tag` or `digest`.
    pub part: &'static str,
    pub text: String,
    pub problem: String,
}

impl Invalid {
    pub(crate) fn new(part: &'static str, text: &str, problem: &str) -> Self {
        Self { part, text: text.chars().take(300).collect(), problem: problem.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Host of the registry with its port, if any: `docker.io`, `localhost:5000`, `[::1]:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository: `library/postgres`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. None only if there is a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest or index. It wins over the tag.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The same image by digest.
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// What the registry's interface takes as the name of the manifest: the digest, else the tag.
    pub fn target(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".into(),
        }
    }

    /// Host that serves the registry's interface; Docker Hub's differs from its name.
    pub fn api_host(&self) -> &str {
        if self.registry == DOCKER_HUB { "registry-1.docker.io" } else { &self.registry }
    }

    /// Whether the registry is on this machine (`localhost`, 127.0.0.0/8, `::1`): there plain HTTP is allowed.
    pub fn is_loopback(&self) -> bool {
        is_loopback(host_of(&self.registry))
    }
}

/// The host without its port and brackets.
pub(crate) fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

/// Whether a host is this computer, without a query to DNS.
pub(crate) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Err(Invalid::new("reference", text, "it is empty"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse::<Digest>()?)),
            None => (text, None),
        };
        let (registry, path) = match rest.split_once('/') {
            // In small letters, unless only the capitals mark it as a host.
            Some((first, path)) if is_registry(&first.to_ascii_lowercase()) => {
                (first.to_ascii_lowercase(), path)
            }
            Some((first, path)) if is_registry(first) => (first.to_owned(), path),
            _ => (DOCKER_HUB.to_owned(), rest),
        };
        check_registry(&registry)?;
        let registry = match registry.as_str() {
            "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB.to_owned(),
            _ => registry,
        };
        // A colon can only begin the tag: the one of a port was taken away with the host.
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        check_repository(repository)?;
        if let Some(tag) = tag {
            check_tag(tag)?;
        }
        let repository = match registry == DOCKER_HUB && !repository.contains('/') {
            true => format!("library/{repository}"),
            false => repository.to_owned(),
        };
        let tag = match (tag, digest) {
            (None, None) => Some("latest".to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Self { registry, repository, tag, digest })
    }
}

/// The first part is a host if it cannot be a repository: it has a dot, a port or a capital, or it is `localhost`.
fn is_registry(first: &str) -> bool {
    first == "localhost"
        || first.contains(['.', ':', '['])
        || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> Result<(), Invalid> {
    let wrong = |problem: &str| Err(Invalid::new("registry", registry, problem));
    let host = host_of(registry);
    let after = registry.strip_prefix('[').map_or_else(
        || registry.strip_prefix(host),
        |rest| rest.strip_prefix(host).and_then(|rest| rest.strip_prefix(']')),
    );
    let Some(after) = after else {
        return wrong("the bracket of the address is not closed");
    };
    if registry.starts_with('[') {
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return wrong("what is in brackets must be an IPv6 address");
        }
    } else if host.is_empty()
        || host.split('.').any(|label| {
            label.is_empty()
                || label.starts_with('-')
                || label.ends_with('-')
                || label.bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'-' && byte != b'_')
        })
    {
        return wrong("a host consists of letters, digits, dots and inner dashes");
    }
    match after.strip_prefix(':') {
        None if after.is_empty() => Ok(()),
        Some(port)
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse::<u16>().is_ok_and(|port| port > 0) =>
        {
            Ok(())
        }
        _ => wrong("the port must be 1 to 65535"),
    }
}

fn check_repository(repository: &str) -> Result<(), Invalid> {
    let wrong = |problem: &str| Err(Invalid::new("repository", repository, problem));
    if repository.is_empty() {
        return wrong("it is empty");
    }
    if repository.len() > REPOSITORY_LIMIT {
        return wrong("it is longer than 255 characters");
    }
    if repository.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return wrong("it must be lower-case");
    }
    for part in repository.split('/') {
        if part.is_empty() {
            return wrong("it has an empty part");
        }
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !edge(part.bytes().next()) || !edge(part.bytes().last()) {
            return wrong("each part must begin and end with a letter or a digit");
        }
        if part.bytes().any(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'.' | b'_' | b'-')) {
            return wrong("allowed are a–z, 0–9, and '.', '_', '-' between them");
        }
        if part.contains("..") || part.contains("___") || part.contains("._") || part.contains("_.") {
            return wrong("between letters and digits stand one '.', one or two '_', or any number of '-'");
        }
    }
    Ok(())
}

fn check_tag(tag: &str) -> Result<(), Invalid> {
    let wrong = |problem: &str| Err(Invalid::new("tag", tag, problem));
    if tag.is_empty() || tag.len() > 128 {
        return wrong("it must have 1 to 128 characters");
    }
    if tag.starts_with(['.', '-'])
        || tag.bytes().any(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'.' | b'_' | b'-'))
    {
        return wrong("allowed are letters, digits, '_', '.' and '-', the last two not at its beginning");
    }
    Ok(())
}
