//! A certificate of a process that holds the key of its authority.

use std::sync::Arc;

use super::{Shown, Validity, renew};
use crate::ca::{Error, Identity};

/// A certificate that is signed here, shown, and renewed while the process runs.
pub struct Own<F> {
    make: F,
    shown: Arc<Shown>,
    pub(super) validity: Validity,
}

impl<F> std::fmt::Debug for Own<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Own").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl<F: Fn() -> Result<Identity, Error>> Own<F> {
    /// The first one that `make` signs.
    ///
    /// # Errors
    /// If it cannot be made or read.
    pub fn new(make: F) -> Result<Self, Error> {
        let identity = make()?;
        let validity = Validity::from_identity(&identity).ok_or_else(unreadable)?;
        Ok(Self { make, shown: Arc::new(Shown::new(&identity)?), validity })
    }

    #[must_use]
    pub fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown)
    }

    /// Renews it; never returns.
    pub async fn keep(self) {
        let once = || {
            let identity = (self.make)()?;
            self.shown.replace(&identity)?;
            Validity::from_identity(&identity).map(Some).ok_or_else(unreadable)
        };
        renew(self.validity, Validity::now, || std::future::ready(once())).await;
    }
}

fn unreadable() -> Error {
    Error::Pem { path: "the certificate that was signed".into(), wanted: "a certificate" }
}
