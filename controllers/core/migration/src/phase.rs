//! QEMU's phases of a migration.

/// The status of a migration that QEMU reports (`MigrationStatus` in QAPI), as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There was none.
    #[default]
    None,
    /// Memory is copied while the guest runs.
    Active,
    /// The guest is paused, and QEMU waits for [`crate::source::Action::SwitchOver`].
    PreSwitchover,
    Device,
    /// The guest runs on the other side, memory follows.
    PostCopyActive,
    /// The same, and the connection is lost.
    PostCopyPaused,
    /// The same, and the connection is being recovered.
    PostCopyRecover,
    /// All is there.
    Completed,
    /// It failed; the guest continues at the source.
    Failed,
    /// It was cancelled; the guest continues at the source.
    Cancelled,
    /// Any other: nothing follows from it.
    Other,
}

impl Phase {
    /// Whether no migration is running.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::None | Self::Completed | Self::Failed | Self::Cancelled)
    }
}
