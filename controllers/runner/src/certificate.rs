//! The runner's certificate, which the controller renews in the pod's secret; and what is wrong with one, in words: libraries hide
//! that deep inside of their errors, or in the name of an alert.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use neonvm_kit::anchors::admitted;
use neonvm_kit::ca::Identity;
use neonvm_kit::certificate::Shown;
use neonvm_kit::trust::Trust;
use rustls::{AlertDescription as Alert, CertificateError as Why, Error as Tls};

use crate::pod_error::{Error as PodError, read};
use crate::replaced::{Watcher, changed};

/// File with the authorities that are trusted.
const AUTHORITIES: &str = "ca.crt";
/// Time between two reads of the files if the kernel reports no change: a suspended VM has no timer that ends more often.
const LOOK: Duration = Duration::from_secs(60);

/// The certificate in the pod's files, as it is now.
#[derive(Debug)]
pub(crate) struct Renewed {
    directory: PathBuf,
    /// Fingerprints of the authorities that are trusted by the pod's environment.
    known: Vec<String>,
    identity: RwLock<Identity>,
    shown: Arc<Shown>,
    trust: Arc<Trust>,
}

impl Renewed {
    /// Reads `tls.crt`, `tls.key` and `ca.crt` of a directory.
    pub(crate) fn load(directory: &Path, known: &[String]) -> Result<Self, PodError> {
        let identity = files(directory)?;
        let path = directory.display().to_string();
        let unusable = |source| PodError::Certificate { path: path.clone(), source };
        let shown = Arc::new(Shown::new(&identity).map_err(unusable)?);
        let bundle = admitted(&read(&directory.join(AUTHORITIES))?, known).map_err(unusable)?;
        let trust = Arc::new(Trust::new(&bundle).map_err(unusable)?);
        let known = known.to_vec();
        Ok(Self { directory: directory.to_owned(), known, identity: RwLock::new(identity), shown, trust })
    }

    /// What new connections show.
    pub(crate) fn identity(&self) -> Identity {
        self.refresh();
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a server shows that stays.
    pub(crate) fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown)
    }

    /// The authorities for a long-lived server; updated in place.
    pub(crate) fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.trust)
    }

    /// The authorities for new connections, PEM.
    pub(crate) fn authorities(&self) -> String {
        self.refresh_trust();
        self.trust.bundle()
    }

    /// Reads the trusted authorities again. A new authority is distributed days before it signs anything.
    fn refresh_trust(&self) {
        let taken = read(&self.directory.join(AUTHORITIES)).map_err(|error| error.to_string());
        let taken =
            taken.and_then(|bundle| admitted(&bundle, &self.known).map_err(|error| error.to_string()));
        match taken.and_then(|bundle| self.trust.replace(&bundle).map_err(|error| error.to_string())) {
            Ok(true) => tracing::info!("other authorities are trusted from now on"),
            Ok(false) => {}
            Err(error) => tracing::warn!(error, "authorities cannot be read; those before are trusted"),
        }
    }

    /// Takes up what is in the files. Whether it is another certificate.
    pub(crate) fn refresh(&self) -> bool {
        self.refresh_trust();
        let next = match files(&self.directory) {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(%error, "the certificate cannot be read; the one before is shown");
                return false;
            }
        };
        let mut identity = self.identity.write().unwrap_or_else(PoisonError::into_inner);
        if identity.certificate == next.certificate && identity.key == next.key {
            return false;
        }
        // One file may have been read before they were exchanged, and the other one after; the next look has both.
        if let Err(error) = self.shown.replace(&next) {
            tracing::warn!(%error, "the certificate does not fit its key; the one before is shown");
            return false;
        }
        *identity = next;
        tracing::info!("the certificate was renewed");
        true
    }

    /// Reads the files when they have changed, and periodically; never returns.
    pub(crate) async fn keep(&self) {
        let watcher = Watcher::new([self.directory.as_path()]);
        let mut watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "changes of the certificate are noticed later"))
            .ok();
        loop {
            let _ = tokio::time::timeout(LOOK, changed(&mut watcher)).await;
            self.refresh();
        }
    }
}

fn files(directory: &Path) -> Result<Identity, PodError> {
    Ok(Identity { certificate: read(&directory.join("tls.crt"))?, key: read(&directory.join("tls.key"))? })
}

/// Why a connection with another runner failed, for people. `it` is the other runner.
pub(crate) fn words(error: &(dyn Error + 'static)) -> String {
    let known = match cause(error) {
        Some(Tls::InvalidCertificate(Why::Expired | Why::ExpiredContext { .. })) => {
            "its certificate has expired"
        }
        Some(Tls::InvalidCertificate(Why::NotValidYet | Why::NotValidYetContext { .. })) => {
            "its certificate is not valid yet"
        }
        // All authorities have one name: of another one only the signature is wrong.
        Some(Tls::InvalidCertificate(Why::UnknownIssuer | Why::BadSignature)) => {
            "its certificate is of another authority"
        }
        Some(Tls::AlertReceived(Alert::CertificateExpired)) => {
            "by its clock the certificate of this runner has expired"
        }
        Some(Tls::AlertReceived(Alert::UnknownCA | Alert::DecryptError)) => {
            "for it the certificate of this runner is of another authority"
        }
        _ => return error.to_string(),
    };
    known.to_owned()
}

fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Tls> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<Tls>() {
            return Some(tls);
        }
        // What an I/O error wraps is not its source: it speaks for it.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use neonvm_kit::ca::Authority;
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    const NAME: &str = "one.example";

    /// The errors that client and server get.
    async fn meet(authority: &Authority, client: &Identity, server: &Identity) -> (String, String) {
        let trusted = authority.certificate();
        let client = neonvm_kit::tls::client(Some(client), trusted.as_bytes()).unwrap();
        let server = neonvm_kit::tls::private_server(server, trusted).unwrap();
        let (near, far) = tokio::io::duplex(64 << 10);
        let asks = async {
            let name = ServerName::try_from(NAME).unwrap();
            let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await?;
            stream.write_all(b"?").await?;
            stream.read_u8().await
        };
        let answers = async {
            let mut stream = TlsAcceptor::from(Arc::new(server)).accept(far).await?;
            stream.read_u8().await?;
            stream.write_all(b"!").await?;
            stream.shutdown().await
        };
        let (asked, answered) = tokio::join!(asks, answers);
        let outcome = |result: Result<(), std::io::Error>| {
            // As a library of HTTP passes it on.
            result.map_or_else(|error| words(&std::io::Error::other(error)), |()| "well".to_owned())
        };
        (outcome(asked.map(drop)), outcome(answered))
    }

    #[tokio::test]
    async fn an_old_certificate_and_a_strange_one_are_named_on_both_sides() {
        let (authority, _) = Authority::generate().unwrap();
        let (other, _) = Authority::generate().unwrap();
        let names = [NAME.to_owned()];
        let good = authority.peer_for("x", &names, 3600).unwrap();
        let old = authority.peer_for("x", &names, -60).unwrap();
        let strange = other.peer_for("x", &names, 3600).unwrap();
        assert_eq!(meet(&authority, &good, &good).await, ("well".to_owned(), "well".to_owned()));
        let (client, server) = meet(&authority, &old, &good).await;
        assert_eq!(client, "by its clock the certificate of this runner has expired");
        assert_eq!(server, "its certificate has expired");
        let (client, server) = meet(&authority, &good, &old).await;
        assert_eq!(client, "its certificate has expired");
        assert_eq!(server, "by its clock the certificate of this runner has expired");
        let (client, server) = meet(&authority, &strange, &good).await;
        assert_eq!(client, "for it the certificate of this runner is of another authority");
        assert_eq!(server, "its certificate is of another authority");
        let (client, server) = meet(&authority, &good, &strange).await;
        assert_eq!(client, "its certificate is of another authority");
        assert_eq!(server, "for it the certificate of this runner is of another authority");
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_are_exchanged_are_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        let (authority, _) = Authority::generate().unwrap();
        let names = [NAME.to_owned()];
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        let first = authority.peer_for("x", &names, 3600).unwrap();
        write("tls.crt", &first.certificate);
        write("tls.key", &first.key);
        write("ca.crt", authority.certificate());
        let known = neonvm_kit::anchors::fingerprints(authority.certificate()).unwrap();
        let renewed = Arc::new(Renewed::load(directory.path(), &known).unwrap());
        assert!(!renewed.refresh());
        let keeping = Arc::clone(&renewed);
        let keeping = tokio::spawn(async move { keeping.keep().await });
        let second = authority.peer_for("x", &names, 3600).unwrap();
        write("tls.crt", &second.certificate);
        tokio::time::sleep(LOOK * 2).await;
        let now = || renewed.identity.read().unwrap().certificate.clone();
        assert_eq!(now(), first.certificate, "its key is not there yet");
        write("tls.key", &second.key);
        tokio::time::sleep(LOOK * 2).await;
        assert_eq!(now(), second.certificate);
        // Another authority signs soon.
        let (next, key) = Authority::generate().unwrap();
        let both =
            [authority.certificate(), next.certificate(), &authority.certify(&key, 600).unwrap()].concat();
        write("ca.crt", &both);
        tokio::time::sleep(LOOK * 2).await;
        assert_eq!(renewed.trust().bundle(), both);
        // A user who can write the secret adds an authority, or puts one in place of all.
        let other = Authority::generate().unwrap().0;
        for forged in [format!("{both}{}", other.certificate()), other.certificate().to_owned()] {
            write("ca.crt", &forged);
            tokio::time::sleep(LOOK * 2).await;
            assert_eq!(renewed.trust().bundle(), both);
        }
        write("ca.crt", "half of it");
        assert_eq!(renewed.authorities(), both);
        keeping.abort();
        std::fs::remove_file(directory.path().join("tls.crt")).unwrap();
        assert_eq!(renewed.identity().certificate, second.certificate);
    }

    /// As a node does it: all files are new when the link is replaced.
    #[tokio::test]
    async fn files_that_the_node_replaces_are_taken_up_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (authority, _) = Authority::generate().unwrap();
        let replace = |identity: &Identity, version: &str| {
            std::fs::create_dir(path(version)).unwrap();
            let files = [
                ("tls.crt", identity.certificate.as_str()),
                ("tls.key", &identity.key),
                ("ca.crt", authority.certificate()),
            ];
            for (name, text) in files {
                std::fs::write(path(version).join(name), text).unwrap();
                let _ = std::os::unix::fs::symlink(Path::new("..data").join(name), path(name));
            }
            std::os::unix::fs::symlink(version, path("..tmp")).unwrap();
            std::fs::rename(path("..tmp"), path("..data")).unwrap();
        };
        let [first, second] = [(); 2].map(|()| authority.peer_for("x", &[NAME.to_owned()], 3600).unwrap());
        replace(&first, "..1");
        let known = neonvm_kit::anchors::fingerprints(authority.certificate()).unwrap();
        let renewed = Arc::new(Renewed::load(directory.path(), &known).unwrap());
        let keeping = Arc::clone(&renewed);
        let keeping = tokio::spawn(async move { keeping.keep().await });
        tokio::task::yield_now().await;
        replace(&second, "..2");
        let taken = async {
            while renewed.identity.read().unwrap().certificate != second.certificate {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LOOK / 2, taken).await.unwrap();
        keeping.abort();
    }
}
