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
        let folder = kernels::folder();
        // SAFETY: as above. A folder that the user names stays.
        unsafe { libc::setenv(kernels::VARIABLE.as_ptr(), folder.as_ptr(), 0) };
    });
}

/// Where MLX keeps the kernels that it compiles for an NVIDIA GPU. By itself it reads them from a
/// folder in /tmp whose name everybody knows, and runs what is there, whoever put it there.
mod kernels {
    use std::env;
    use std::ffi::{CStr, CString};
    use std::fs::{self, DirBuilder};
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    use std::path::{Path, PathBuf};

    use super::HEADERS;

    pub(super) const VARIABLE: &CStr = c"MLX_PTX_CACHE_DIR";

    /// A folder of the user's own, or nothing: then MLX compiles each kernel once per process.
    pub(super) fn folder() -> CString {
        let own = |name: &str| env::var_os(name).filter(|path| Path::new(path).is_absolute());
        let caches = own("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(&own("HOME")?).join(".cache")));
        // No folder is made where there is no such GPU.
        let gpu = ["/dev/nvidiactl", "/dev/dxg"];
        let wanted = gpu.iter().any(|path| Path::new(path).exists())
            && env::var_os("MLX_PTX_CACHE_DIR").is_none();
        let folder = caches.filter(|_| wanted).and_then(|caches| within(&caches));
        folder
            .and_then(|path| CString::new(path.into_os_string().into_vec()).ok())
            .unwrap_or_default()
    }

    /// The folder of this version among the user's caches, if nobody else can write to it or put
    /// another in its place.
    pub(super) fn within(caches: &Path) -> Option<PathBuf> {
        let folder = caches.join("mlx").join("ptx").join(HEADERS);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .ok()?;
        let ours = folder.ancestors().take(4).all(is_ours);
        ours.then_some(folder)
    }

    fn is_ours(path: &Path) -> bool {
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        fs::metadata(path)
            .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
    }
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
    #[cfg_attr(miri, ignore = "calls MLX")]
    fn another_version_is_refused_by_name() {
        assert_eq!(compare(HEADERS), Ok(()));
        assert_eq!(library(), HEADERS);
        let message = compare("0.1.0").map_err(|error| error.to_string());
        assert!(message.is_err_and(|text| text.contains("is version 0.1.0")));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel who may write")]
    fn kernels_are_kept_where_nobody_else_can_write() -> std::io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        use std::{env, fs, process};

        let caches = env::temp_dir().join(format!("mlx-kernels-{}", process::id()));
        let allow = |path: &std::path::Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        };
        fs::create_dir(&caches)?;
        allow(&caches, 0o755)?;
        let folder = caches.join("mlx/ptx").join(HEADERS);
        assert_eq!(kernels::within(&caches).as_ref(), Some(&folder));
        assert_eq!(fs::metadata(&folder)?.permissions().mode() & 0o777, 0o700);
        for open in [&folder, &caches.join("mlx"), &caches] {
            for mode in [0o770, 0o702] {
                allow(open, mode)?;
                assert_eq!(kernels::within(&caches), None, "{open:?} {mode:o}");
            }
            allow(open, 0o700)?;
            assert!(kernels::within(&caches).is_some());
        }
        assert_eq!(kernels::within(&folder.join("missing\0")), None);
        fs::remove_dir_all(caches)
    }
}
