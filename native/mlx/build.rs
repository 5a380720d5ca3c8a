//! Lets this crate's tests find libmlx where it was linked from.

fn main() {
    if let Ok(libs) = std::env::var("DEP_MLX_FFI_LIBS") {
        for folder in std::env::split_paths(&libs) {
            println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
        }
    }
}
