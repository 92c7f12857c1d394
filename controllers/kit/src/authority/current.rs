//! The current authority, for a signer, while it may be handed over.

use std::sync::{Arc, PoisonError, RwLock};

use crate::ca::Authority;

/// The authority of the moment. Clones share it.
#[derive(Clone, Debug)]
pub struct Current(Arc<RwLock<Arc<Authority>>>);

impl Current {
    #[must_use]
    pub fn new(authority: Authority) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(authority))))
    }

    /// The one of the moment.
    #[must_use]
    pub fn get(&self) -> Arc<Authority> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another one from now on; whether it signs or trusts otherwise than the one before.
    pub fn replace(&self, next: Authority) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let differs = current.certificate() != next.certificate() || current.bundle() != next.bundle();
        if differs {
            *current = Arc::new(next);
        }
        differs
    }
}
