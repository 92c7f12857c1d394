//! Reading the files of the pod.

use std::path::Path;

/// Why the pod is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("{path} is not the configuration of a runner: {source}")]
    Parse { path: String, source: serde_json::Error },
    #[error(
        "{path} is not the configuration with which this pod was made: its SHA-256 is {found}, and {made_with} is in the pod's \
         environment; the secret was changed. Restart the VM: neonctl vm restart"
    )]
    Forged { path: String, found: String, made_with: String },
    #[error("cannot make {path}: {source}")]
    Make { path: String, source: std::io::Error },
    #[error("the certificate in {path} cannot be used: {source}")]
    Certificate { path: String, source: neonvm_kit::ca::Error },
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.display().to_string(), source })
}
