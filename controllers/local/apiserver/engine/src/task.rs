//! Background tasks, in the order in which changes cause them.

use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A namespace was made or changed.
    Namespace(String),
    /// Something left a namespace.
    NamespaceContent(String),
    /// An object with this uid is gone, or its deletion has to wait for or let go its dependents.
    Removed(String),
    /// An object under an orphaning or foreground deletion.
    Propagate(Arc<str>, Arc<str>),
    /// A dependent of this owner is gone.
    Dependent(String),
    Owners(Arc<str>, Arc<str>),
    Definition(String),
    /// Names in this group have become free.
    Definitions(String),
}
