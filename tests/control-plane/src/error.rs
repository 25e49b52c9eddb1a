//! One kind of error: a text for whoever reads why a test failed.

use std::fmt::Display;

/// What went wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

macro_rules! from {
    ($($type:ty),*) => {$(
        impl From<$type> for Error {
            fn from(error: $type) -> Self {
                Self(error.to_string())
            }
        }
    )*};
}

from!(
    &str,
    String,
    std::io::Error,
    serde_json::Error,
    rcgen::Error,
    kube::Error,
    kube::config::KubeconfigError,
    tokio::task::JoinError,
    slicegate_tpu::SliceError
);

/// Says what was being done when an error came up.
pub trait Context<T> {
    /// Puts `what` before the error.
    ///
    /// # Errors
    /// If there is one.
    fn doing(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn doing(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Error(format!("{what}: {error}")))
    }
}

impl<T> Context<T> for Option<T> {
    fn doing(self, what: impl Display) -> Result<T> {
        self.ok_or_else(|| Error(format!("{what}: there is none")))
    }
}

/// Ends a test with this message if the condition does not hold.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Error::new(format!($($message)+)));
        }
    };
}

/// Ends a test if two values differ, with both.
#[macro_export]
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($message:tt)+) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err($crate::Error::new(format!("{}:\n  got  {left:?}\n  want {right:?}", format!($($message)+))));
        }
    }};
}
