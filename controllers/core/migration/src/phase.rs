//! How far QEMU says that a move is.

/// How far a move is by QEMU's word (`MigrationStatus` in QAPI), as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There was none.
    #[default]
    None,
    /// Memory is copied while the guest runs.
    Active,
    /// The guest stands still, and QEMU waits for [`crate::source::Action::SwitchOver`].
    PreSwitchover,
    /// Devices are sent.
    Device,
    /// The guest runs on the other side, memory follows.
    PostCopyActive,
    /// The same, and the connection is lost.
    PostCopyPaused,
    /// The same, and it goes on.
    PostCopyRecover,
    /// All is there.
    Completed,
    /// It failed. At the source the guest goes on.
    Failed,
    /// It was called off; the guest goes on.
    Cancelled,
    /// Any other: nothing follows from it.
    Other,
}

impl Phase {
    /// Whether no move goes on.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::None | Self::Completed | Self::Failed | Self::Cancelled)
    }
}
