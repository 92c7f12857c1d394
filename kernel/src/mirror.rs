//! Kernels from a mirror of Debian, for every distribution: known by version and SHA-256, so that neither the mirror nor
//! the way from it need be trusted.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Doing as _;
use crate::{Error, Progress, run, store};

/// The mirror that is used when none is given.
pub const DEFAULT: &str = "http://deb.debian.org/debian";
/// How long a mirror may send nothing.
const STALL: Duration = Duration::from_secs(30);
/// How often it is looked for a stop.
const LOOK: Duration = Duration::from_millis(100);
/// How often progress is reported.
const REPORT: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned {
    pub version: &'static str,
    /// Its path below a mirror.
    pub path: &'static str,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: &'static str,
}

/// All that are known; the first one is used if no version is given. From the signed lists of packages of Debian.
pub const PINNED: [Pinned; 2] = [
    Pinned {
        version: "6.12.117-1",
        path: "pool/main/l/linux-signed-amd64/linux-image-6.12.117+deb13-cloud-amd64_6.12.117-1_amd64.deb",
        size: 34_671_208,
        sha256: "e9893e5295d0549b8852611f12a4b8b5f6cc4b8128dcc2086b9847793b904ab7",
    },
    Pinned {
        version: "6.1.176-1",
        path: "pool/main/l/linux-signed-amd64/linux-image-6.1.0-50-cloud-amd64_6.1.176-1_amd64.deb",
        size: 26_484_304,
        sha256: "efe19f605b6f54a8352e68d85a629abb2d30b72a085faef603a9152590baa791",
    },
];

impl Pinned {
    /// The kernel of a version or of a series (`6.12`); the first one if none is given.
    pub fn of_version(wanted: Option<&str>) -> Result<Self, Error> {
        let [first, ..] = PINNED;
        let Some(wanted) = wanted else { return Ok(first) };
        let is_it = |pinned: &&Self| {
            let rest = pinned.version.strip_prefix(wanted);
            !wanted.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
        };
        PINNED.iter().find(is_it).copied().ok_or_else(|| Error::NotPinned {
            wanted: wanted.to_owned(),
            known: PINNED.iter().map(|pinned| pinned.version).collect(),
        })
    }

    pub fn file(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Downloads a kernel's package; it is the file that is known, or an error.
pub fn download(mirror: &str, kernel: &Pinned, to: &Path, progress: &dyn Progress) -> Result<(), Error> {
    let url = format!("{}/{}", mirror.trim_end_matches('/'), kernel.path);
    progress.begin("download", &url);
    let request = Request { url: &url, size: kernel.size, stop: &run::INTERRUPTED };
    request.run(to, progress)?;
    check(&url, to, kernel.sha256)?;
    progress.end(kernel.file());
    Ok(())
}

/// Refuses a file with another hash.
pub fn check(what: &str, file: &Path, sha256: &str) -> Result<(), Error> {
    let found = store::sha256(file)?;
    if found.eq_ignore_ascii_case(sha256) {
        return Ok(());
    }
    Err(Error::Hash { what: what.to_owned(), found, expected: sha256.to_ascii_lowercase() })
}

fn failed(url: &str, error: &dyn std::error::Error) -> Error {
    let mut why = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        why = format!("{why}: {error}");
        cause = error.source();
    }
    Error::Download { url: url.to_owned(), why }
}

struct Request<'a> {
    url: &'a str,
    /// Size of the file in bytes.
    size: u64,
    /// Set when it has to end.
    stop: &'a AtomicBool,
}

impl Request<'_> {
    fn run(&self, to: &Path, progress: &dyn Progress) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(self.url, &error))?;
        let outcome = runtime.block_on(self.get(to, progress));
        // A lookup of a name runs on a thread, which is not waited for.
        runtime.shutdown_background();
        outcome
    }

    fn wrong(&self, why: String) -> Error {
        Error::Download { url: self.url.to_owned(), why }
    }

    /// Waits, looking for a stop, at most [`STALL`].
    async fn waited<T>(&self, work: impl Future<Output = Result<T, reqwest::Error>>) -> Result<T, Error> {
        let mut work = std::pin::pin!(work);
        let begun = Instant::now();
        loop {
            match tokio::time::timeout(LOOK, work.as_mut()).await {
                _ if self.stop.load(Ordering::SeqCst) => return Err(Error::Interrupted),
                Ok(ended) => return ended.map_err(|error| failed(self.url, &error.without_url())),
                Err(_) if begun.elapsed() < STALL => {}
                Err(_) => return Err(self.wrong(format!("nothing came for {} s", STALL.as_secs()))),
            }
        }
    }

    async fn get(&self, to: &Path, progress: &dyn Progress) -> Result<(), Error> {
        // Fails only if there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().user_agent(concat!("neonvm/", env!("CARGO_PKG_VERSION")));
        let client = client.build().map_err(|error| failed(self.url, &error))?;
        let mut response = self.waited(client.get(self.url).send()).await?;
        if !response.status().is_success() {
            return Err(self.wrong(format!("the mirror returned {}", response.status())));
        }
        let mut file = std::fs::File::create(to).doing("create", to)?;
        let (mut done, mut shown) = (0_u64, Instant::now());
        while let Some(bytes) = self.waited(response.chunk()).await? {
            done = done.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            if done > self.size {
                return Err(self.wrong(format!("it has more than the expected {} bytes", self.size)));
            }
            file.write_all(&bytes).doing("write", to)?;
            if shown.elapsed() >= REPORT {
                shown = Instant::now();
                progress.line(&format!("{} of {} MiB", done >> 20, self.size >> 20));
            }
        }
        if done < self.size {
            return Err(self.wrong(format!("it ended after {done} of {} bytes", self.size)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
