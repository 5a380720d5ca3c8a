//! What was compiled against, and what is really loaded.

use std::ffi::CStr;
use std::sync::Once;

use mlx_ffi as ffi;

use crate::error::{Error, Result};

/// The MLX version whose headers were compiled against.
pub const HEADERS: &str = ffi::HEADER_VERSION;

/// The version of the MLX library that is loaded.
pub fn library() -> String {
    // SAFETY: the string is ours from `mlx_string_new` to `mlx_string_free`.
    unsafe {
        let mut string = ffi::mlx_string_new();
        ffi::mlx_version(&mut string);
        let data = ffi::mlx_string_data(string);
        let version = if data.is_null() {
            String::new()
        } else {
            CStr::from_ptr(data).to_string_lossy().into_owned()
        };
        ffi::mlx_string_free(string);
        version
    }
}

/// The file whose BLAS serves MLX, or an empty string where MLX's own does.
pub fn blas() -> String {
    ffi::blas_file().unwrap_or_default()
}

/// Says once, before MLX looks, what the environment leaves open.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // MLX fails where many different graphs come one after the other, as eager operations do.
        let (name, off) = (c"MLX_ENABLE_CACHE_THRASHING_CHECK", c"0");
        // SAFETY: two strings; this is ahead of the first thread that calls MLX, which reads it.
        unsafe { libc::setenv(name.as_ptr(), off.as_ptr(), 0) };
    });
}

/// Whether what is loaded is what was compiled against.
pub(crate) fn check() -> Result<()> {
    compare(&library())
}

/// MLX's C++ classes are inline in its headers: a library of another version would be called with
/// the wrong layouts.
fn compare(library: &str) -> Result<()> {
    if library == HEADERS {
        return Ok(());
    }
    Err(Error::invalid(
        "version",
        format!(
            "the MLX library that was loaded is version {library}, and Mlx was built for {HEADERS}: \
             unset LD_LIBRARY_PATH and MLX_DIR, or build again"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_refused_by_name() {
        assert_eq!(compare(HEADERS), Ok(()));
        assert_eq!(library(), HEADERS);
        let message = compare("0.1.0").map_err(|error| error.to_string());
        assert!(message.is_err_and(|text| text.contains("is version 0.1.0")));
    }
}
