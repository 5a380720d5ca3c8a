//! Makes the NIF find the libraries that travel beside it, wherever a release is moved to.

fn main() {
    if cfg!(target_os = "macos") {
        // The symbols of the BEAM are there once it loads the library.
        println!("cargo:rustc-link-arg=-Wl,-undefined,dynamic_lookup");
        println!("cargo:rustc-link-arg=-Wl,-rpath,@loader_path/mlx/lib");
    } else {
        // DT_RUNPATH, not DT_RPATH: LD_LIBRARY_PATH must be able to hand in another libmlx.
        println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags");
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/blas:$ORIGIN/mlx/lib");
        // Its threads live as long as the process, whatever becomes of the module that loaded it.
        println!("cargo:rustc-link-arg=-Wl,-z,nodelete");
        // Needed by the BLAS and not by this library, which has to find them for it.
        let fortran = std::env::var("DEP_MLX_FFI_FORTRAN").unwrap_or_default();
        for file in std::env::split_paths(&fortran).filter(|file| file.exists()) {
            let file = file.display();
            println!("cargo:rustc-link-arg=-Wl,--push-state,--no-as-needed,{file},--pop-state");
        }
    }
}
