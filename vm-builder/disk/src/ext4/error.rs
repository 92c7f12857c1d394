//! Why a tree cannot become a file system.

/// Why a tree cannot become a file system. Paths are shown with invalid UTF-8 replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "the content does not fit into {size} bytes: at least {needed} bytes are needed (--size {needed_mib}M)",
        needed_mib = needed.div_ceil(1 << 20)
    )]
    DoesNotFit {
        /// Requested size in bytes.
        size: u64,
        /// Least size in bytes.
        needed: u64,
    },
    #[error("a file system of {0} bytes is out of range: 1 MiB to 16 TiB")]
    Size(u64),
    #[error(
        "{needed} inodes are needed and a file system of {size} bytes can have {limit}: choose a larger --size"
    )]
    TooManyInodes {
        /// Inodes of the tree, or the requested number.
        needed: u64,
        /// Greatest number at this size.
        limit: u64,
        /// Size in bytes.
        size: u64,
    },
    #[error("{0}")]
    Option(String),
    #[error(
        "{path}: a name has 1 to 255 bytes, no `/`, no NUL, and is not `.` or `..`; this one has {length}"
    )]
    Name {
        path: String,
        /// Its length in bytes.
        length: usize,
    },
    #[error("{0}: the tree has no such inode")]
    NoInode(String),
    #[error("{0}: a directory can have only one name")]
    DirectoryLinked(String),
    #[error("{0}: more than 65000 hard links")]
    TooManyLinks(String),
    /// A file beyond what 32-bit block numbers can count.
    #[error("{path}: {length} bytes are more than the 16 TiB a file can have")]
    FileTooLong {
        path: String,
        /// Size in bytes.
        length: u64,
    },
    #[error(
        "{path}: the piece at byte {at} is empty, overlaps another, is out of order, or goes beyond the end"
    )]
    Pieces {
        path: String,
        /// First byte of the piece.
        at: u64,
    },
    #[error("{0}: too many names in one directory")]
    DirectoryTooLong(String),
    /// A symbolic link with a target that is empty, has a NUL, or is over 4095 bytes.
    #[error("{path}: the target of a symbolic link has 1 to 4095 bytes and no NUL; this one has {length}")]
    Target {
        path: String,
        /// Length of the target in bytes.
        length: usize,
    },
    #[error("{path}: device {major}:{minor} is out of range (major below 4096, minor below 1048576)")]
    Device { path: String, major: u32, minor: u32 },
    #[error("{path}: extended attribute `{name}` has a name that ext4 cannot store")]
    AttributeName { path: String, name: String },
    #[error("{path}: extended attribute `{name}` is not a valid access control list")]
    AccessControlList { path: String, name: String },
    #[error(
        "{path}: extended attribute `{name}` of {length} bytes does not fit: the attributes of a file share about 4 KiB"
    )]
    AttributesDoNotFit {
        path: String,
        /// Full name of the first attribute that does not fit.
        name: String,
        /// Length of its value in bytes.
        length: usize,
    },
    #[error("/lost+found: must be a directory")]
    LostAndFound,
}
