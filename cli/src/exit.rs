//! How a command ends: its exit code, what went wrong, and what to do next.

use std::{fmt, process::ExitCode};

/// Exit code of a command that did what was asked.
pub const OK: u8 = 0;
/// Something failed, or data was wrong.
pub const FAILED: u8 = 1;
/// The command line or a configuration file makes no sense (clap uses the same number).
pub const USAGE: u8 = 2;
/// The control plane or a node refused: the rules say no, and a retry gets the same answer.
pub const REFUSED: u8 = 3;
/// Nobody who could answer was reached; nothing was changed; a retry may work.
pub const UNAVAILABLE: u8 = 4;
/// It may or may not have happened: look before trying again.
pub const UNKNOWN: u8 = 5;
/// What was asked for is certainly not there.
pub const ABSENT: u8 = 6;

/// What kind of end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`FAILED`].
    Failed,
    /// [`USAGE`].
    Usage,
    /// [`REFUSED`].
    Refused,
    /// [`UNAVAILABLE`].
    Unavailable,
    /// [`UNKNOWN`].
    Unknown,
    /// [`ABSENT`].
    Absent,
}

impl Kind {
    /// The process's exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Failed => FAILED,
            Self::Usage => USAGE,
            Self::Refused => REFUSED,
            Self::Unavailable => UNAVAILABLE,
            Self::Unknown => UNKNOWN,
            Self::Absent => ABSENT,
        }
    }

    /// The word that opens the line on stderr.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown outcome",
            Self::Absent => "not found",
        }
    }
}

/// A command's failure, ready to be printed.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    next: String,
}

impl Failure {
    /// A failure of `kind`: what happened, and what the reader should do next.
    pub fn new(kind: Kind, message: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self {
            kind,
            message: message.to_string(),
            next: next.to_string(),
        }
    }

    /// [`Kind::Failed`].
    pub fn failed(message: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::new(Kind::Failed, message, next)
    }

    /// [`Kind::Usage`].
    pub fn usage(message: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, message, next)
    }

    /// [`Kind::Refused`].
    pub fn refused(message: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::new(Kind::Refused, message, next)
    }

    /// [`Kind::Unavailable`].
    pub fn unavailable(message: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::new(Kind::Unavailable, message, next)
    }

    /// [`Kind::Unknown`].
    pub fn unknown(message: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::new(Kind::Unknown, message, next)
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind.code())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.word(), self.message)?;
        if !self.next.is_empty() {
            write!(f, "\n  next: {}", self.next)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(
            error,
            "check the disk, the terminal or the pipe that the output goes to",
        )
    }
}

/// What every command returns.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_exit_code() {
        let kinds = [
            Kind::Failed,
            Kind::Usage,
            Kind::Refused,
            Kind::Unavailable,
            Kind::Unknown,
            Kind::Absent,
        ];
        let codes: Vec<u8> = kinds.into_iter().map(Kind::code).collect();
        assert_eq!(
            codes,
            [1, 2, 3, 4, 5, 6],
            "these numbers are documented; scripts rely on them"
        );
    }

    #[test]
    fn a_failure_says_what_to_do_next() {
        let failure = Failure::refused("node n9 is not registered", "start its agent");
        assert_eq!(
            failure.to_string(),
            "refused: node n9 is not registered\n  next: start its agent"
        );
    }
}
