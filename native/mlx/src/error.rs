//! What can go wrong, by kind, with the operation it happened in.

use std::ffi::CStr;
use std::os::raw::c_int;
use std::sync::Arc;

/// A failure. Cloned freely: it poisons every result computed from the one that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong: sizes, ranks, types, an unknown instruction.
    #[error("{message}")]
    InvalidArgument {
        /// The operation that rejects it.
        op: &'static str,
        /// What is wrong, with the values.
        message: String,
        /// The operands' types and shapes, where an operation of the table rejects them.
        operands: Option<String>,
    },
    /// MLX refused; the text is MLX's own.
    #[error("{message}")]
    Native {
        /// The operation that MLX refused.
        op: &'static str,
        /// MLX's text, untouched.
        message: String,
        /// The operands' types and shapes, where it is an operation of the table.
        operands: Option<String>,
    },
    /// A result larger than MLX's memory limit, refused before anything is allocated.
    #[error(
        "a result of {bytes} bytes exceeds the memory limit of {limit} bytes; work in smaller pieces"
    )]
    OutOfMemory {
        /// The operation whose result is too large.
        op: &'static str,
        /// The result's size.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
    /// There was no memory for a result, or for what comes before it, when it was computed.
    #[error("{message}")]
    Exhausted {
        /// The operation in which it was missed.
        op: &'static str,
        /// MLX's text, untouched.
        message: String,
        /// The operands' types and shapes, where it is an operation of the table.
        operands: Option<String>,
    },
    /// The worker was stopped before the job ran.
    #[error("the worker of this device was stopped")]
    Stopped,
    /// Nobody holds the result or waits for it any more.
    #[error("the work was given up because nobody was left to use its result")]
    Cancelled,
    /// The array was freed by its owner.
    #[error("the array was deallocated")]
    Deallocated,
    /// A bug of ours, caught at the job's edge.
    #[error("a job panicked: {message}; this is a bug in Mlx, please report it")]
    Panic {
        /// The panic's message.
        message: String,
    },
    /// What a program was to check did not hold.
    #[error("{message}")]
    Checked {
        /// What did not hold, as the kind that Elixir sees.
        kind: &'static str,
        /// The operation, as the program's maker calls it.
        op: String,
        /// What is wrong, with the values.
        message: String,
        /// The operands, in the words of the program's maker.
        operands: Option<String>,
    },
    /// A failure of a program that has a label.
    #[error("{error}")]
    Labelled {
        /// The label, see [`crate::Program::with_label`].
        label: Arc<[u8]>,
        /// What failed.
        error: Box<Error>,
    },
}

/// What MLX and CUDA say where there is no memory.
const EXHAUSTED: [&str; 4] = [
    "[malloc]",
    "[metal::malloc]",
    "cudaErrorMemoryAllocation",
    "failed: out of memory",
];

/// The result of anything here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The name of the kind, which is the atom that Elixir sees.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::InvalidArgument { .. } => "invalid_argument",
            Self::Native { .. } => "native",
            Self::OutOfMemory { .. } | Self::Exhausted { .. } => "out_of_memory",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
            Self::Deallocated => "deallocated",
            Self::Panic { .. } => "panic",
            Self::Checked { kind, .. } => kind,
            Self::Labelled { error, .. } => error.kind(),
        }
    }

    /// The operation it happened in, if it happened in one.
    pub fn op(&self) -> Option<&str> {
        match self {
            Self::InvalidArgument { op, .. }
            | Self::Native { op, .. }
            | Self::OutOfMemory { op, .. }
            | Self::Exhausted { op, .. } => Some(op),
            Self::Checked { op, .. } => Some(op),
            Self::Labelled { error, .. } => error.op(),
            _ => None,
        }
    }

    /// Says that `op` is what rejects the request.
    pub fn invalid(op: &'static str, message: impl Into<String>) -> Self {
        Self::InvalidArgument {
            op,
            message: message.into(),
            operands: None,
        }
    }

    /// MLX's refusal, with the text that it left for this thread.
    pub(crate) fn native(op: &'static str) -> Self {
        let (message, operands) = (last_message(), None);
        if EXHAUSTED.iter().any(|words| message.contains(words)) {
            return Self::Exhausted {
                op,
                message,
                operands,
            };
        }
        Self::Native {
            op,
            message,
            operands,
        }
    }

    /// The operands' types and shapes, if it is an operation of the table that failed on them.
    pub fn operands(&self) -> Option<&str> {
        match self {
            Self::InvalidArgument { operands, .. }
            | Self::Native { operands, .. }
            | Self::Exhausted { operands, .. }
            | Self::Checked { operands, .. } => operands.as_deref(),
            Self::Labelled { error, .. } => error.operands(),
            _ => None,
        }
    }

    /// The label of the program that failed, if it has one.
    pub fn label(&self) -> Option<&[u8]> {
        match self {
            Self::Labelled { label, .. } => Some(label),
            _ => None,
        }
    }

    /// Says which program failed. Where a program inside of it, or an operand, has said so already,
    /// that stays: it is where the failure comes from.
    #[must_use]
    pub(crate) fn labelled(self, label: Option<&Arc<[u8]>>) -> Self {
        match (label, self) {
            (Some(label), error) if error.label().is_none() => Self::Labelled {
                label: label.clone(),
                error: Box::new(error),
            },
            (_, error) => error,
        }
    }

    /// Names the operation from the table, which knows it, in place of the C function, and what it
    /// was done to.
    #[must_use]
    pub(crate) fn within(self, name: &'static str, described: String) -> Self {
        match self {
            Self::InvalidArgument { message, .. } => Self::InvalidArgument {
                op: name,
                message,
                operands: Some(described),
            },
            Self::Native { message, .. } => Self::Native {
                op: name,
                message,
                operands: Some(described),
            },
            Self::OutOfMemory { bytes, limit, .. } => Self::OutOfMemory {
                op: name,
                bytes,
                limit,
            },
            Self::Exhausted { message, .. } => Self::Exhausted {
                op: name,
                message,
                operands: Some(described),
            },
            other => other,
        }
    }
}

/// Turns a status of mlx-c into a result, with the text that MLX left for this thread.
pub(crate) fn check(status: c_int, op: &'static str) -> Result<()> {
    if status == 0 {
        Ok(())
    } else {
        Err(Error::native(op))
    }
}

fn last_message() -> String {
    // SAFETY: the pointer is to this thread's own buffer, which no call changes before it is copied.
    let text = unsafe { CStr::from_ptr(mlx_ffi::mlx_ffi_last_error()) };
    text.to_string_lossy().into_owned()
}
