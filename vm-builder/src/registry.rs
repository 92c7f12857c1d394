//! Registries: fetching manifests and blobs, pushing them, logging in.

use std::path::PathBuf;

/// The files in which logins of registries are looked up, most important first.
#[must_use]
pub fn auth_files() -> Vec<PathBuf> {
    Vec::new()
}
