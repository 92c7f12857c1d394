//! Errors as they are shown: the attempt, its causes from outer to inner, one hint; and the exit code.

/// Why a command did not do what it was asked for; each has its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Failed,
    Usage,
    NotFound,
    Denied,
    Conflict,
    /// Time is up; work goes on.
    Timeout,
    Unhealthy,
    /// The cluster cannot be reached.
    Unreachable,
    Interrupted,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 9] = [
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Denied,
        Self::Conflict,
        Self::Timeout,
        Self::Unhealthy,
        Self::Unreachable,
        Self::Interrupted,
    ];

    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Denied => 4,
            Self::Conflict => 5,
            Self::Timeout => 6,
            Self::Unhealthy => 7,
            Self::Unreachable => 8,
            Self::Interrupted => 130,
        }
    }

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Usage => "Usage",
            Self::NotFound => "NotFound",
            Self::Denied => "Denied",
            Self::Conflict => "Conflict",
            Self::Timeout => "Timeout",
            Self::Unhealthy => "Unhealthy",
            Self::Unreachable => "Unreachable",
            Self::Interrupted => "Interrupted",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    /// The attempt and the reason, lower case, no full stop.
    pub message: String,
    /// From outer to inner.
    pub causes: Vec<String>,
    /// What to do, imperative, runnable if possible.
    pub hint: Option<String>,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: Vec::new(), hint: None }
    }

    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An operation on a file that failed: [`Code::NotFound`] if a file to read does not exist.
    pub fn file(verb: &str, path: &std::path::Path, source: &std::io::Error) -> Self {
        let is_absent = verb == "read" && source.kind() == std::io::ErrorKind::NotFound;
        Self::new(
            if is_absent { Code::NotFound } else { Code::Failed },
            format!("cannot {verb} {}", path.display()),
        )
        .cause(reason(source))
    }
}

/// An I/O error without the number that the library adds.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

pub type Result<T> = std::result::Result<T, Error>;
