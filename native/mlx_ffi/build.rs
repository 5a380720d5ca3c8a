//! Finds MLX, compiles the pinned mlx-c against it, binds its headers and says how to link.
//!
//! Everything that decides which files end up in the library is in this file; nothing here runs
//! at run time.

use std::env;
use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() {
    if let Err(error) = build() {
        // A build script's panic message is what cargo shows last; one sentence says the remedy.
        eprintln!("mlx: {error}");
        std::process::exit(1);
    }
}

fn build() -> Result<()> {
    for name in ["MLX_DIR", "MLX_VARIANT", "MLX_BLAS", "CXX"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(blas, values(\"none\", \"openblas\", \"other\"))");

    let out = PathBuf::from(env::var("OUT_DIR")?);
    let site = site_dir()?;
    // An MLX of the user's own may be an installation prefix, such as /usr/local.
    let inner = site.join("mlx");
    let mlx = if inner.join("lib").exists() {
        inner
    } else {
        site
    };
    let mlx_c = mlx_c_sources()?;
    let version = check_version(&mlx, &mlx_c)?;
    let blas = find_blas();

    compile(&mlx, &mlx_c, &out)?;
    bind(&mlx_c, &out)?;
    link(&mlx, blas.as_deref(), &out)?;
    println!("cargo:rustc-env=MLX_VERSION={version}");
    Ok(())
}

/// The unpacked wheel, found or fetched by the script beside us.
fn site_dir() -> Result<PathBuf> {
    let script = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("fetch_mlx.py");
    let output = Command::new(python())
        .arg(&script)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("python3 is needed to fetch MLX and could not be started ({e})"))?;
    if !output.status.success() {
        return Err("MLX could not be obtained; the line above says why".into());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Where cargo unpacked mlx-sys, whose package carries mlx-c's sources.
fn mlx_c_sources() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("Cargo.toml"))
        .exec()?;
    let package = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == "mlx-sys")
        .ok_or("cargo metadata does not list mlx-sys, the package that carries mlx-c")?;
    let root = package
        .manifest_path
        .parent()
        .ok_or("mlx-sys has no folder")?;
    Ok(root.join("src/mlx-c").into())
}

/// mlx-c is written for one MLX version, and C++ classes are inline in MLX's headers: any other
/// version is a different ABI.
fn check_version(mlx: &Path, mlx_c: &Path) -> Result<String> {
    let cmake = fs::read_to_string(mlx_c.join("CMakeLists.txt"))?;
    let wanted = cmake
        .split_whitespace()
        .find_map(|word| word.strip_prefix('v')?.strip_suffix(')'))
        .filter(|word| word.contains('.'))
        .ok_or("mlx-c does not say which MLX it is written for")?
        .to_owned();
    let header = mlx.join("include/mlx/version.h");
    let text = fs::read_to_string(&header)
        .map_err(|e| format!("{} cannot be read ({e}); set MLX_DIR to the folder of an MLX {wanted} that holds lib/ and include/", header.display()))?;
    let number = |name: &str| {
        text.lines()
            .find_map(|line| line.split_once(name))
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    let found = [
        "MLX_VERSION_MAJOR",
        "MLX_VERSION_MINOR",
        "MLX_VERSION_PATCH",
    ]
    .map(number)
    .join(".");
    if found != wanted {
        return Err(format!(
            "the MLX in {} is version {found}, and mlx-c needs {wanted}; unset MLX_DIR or point it to that version",
            mlx.display()
        )
        .into());
    }
    Ok(wanted)
}

/// The BLAS that goes ahead of libmlx, so that its `cblas_*` and LAPACK calls land there.
/// Apple systems have Accelerate, and the CUDA build keeps its own for GPU work, yet its CPU
/// stream gains as well.
fn find_blas() -> Option<PathBuf> {
    match env::var("MLX_BLAS") {
        Ok(path) if path == "none" || path.is_empty() => return None,
        Ok(path) => return Some(PathBuf::from(path)),
        Err(_) if cfg!(target_os = "macos") => return None,
        Err(_) => (),
    }
    let mut folders = pkg_config::Config::new()
        .cargo_metadata(false)
        .probe("openblas")
        .map(|library| library.link_paths)
        .unwrap_or_default();
    for root in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"] {
        folders.push(Path::new(root).join("openblas-pthread"));
        folders.push(root.into());
    }
    folders.extend(["/usr/lib64", "/usr/lib", "/usr/local/lib"].map(PathBuf::from));
    let found = folders
        .iter()
        .map(|folder| folder.join("libopenblas.so"))
        .find(|file| file.exists() && is_recent(file));
    if found.is_none() {
        println!(
            "cargo:warning=OpenBLAS 0.3.29 or newer was not found: matrix products will be about 50 times slower. \
             Install libopenblas-dev (Debian, Ubuntu) or openblas-devel (Fedora), or name a BLAS with MLX_BLAS, and build again."
        );
    }
    found
}

/// Whether an OpenBLAS is 0.3.29 or newer, which it says itself: older ones compute with the wrong
/// kernels on recent processors.
fn is_recent(openblas: &Path) -> bool {
    let script = "import ctypes, sys
config = ctypes.CDLL(sys.argv[1]).openblas_get_config
config.restype = ctypes.c_char_p
version = config().decode().split()[1].split('.')
sys.exit([int(part) for part in version[:3]] < [0, 3, 29])";
    Command::new(python())
        .args(["-c", script])
        .arg(openblas)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn python() -> String {
    env::var("PYTHON").unwrap_or_else(|_| "python3".into())
}

/// A compiler whose C++ library has `std::format`, which mlx-c uses.
fn cxx() -> Result<String> {
    let named = env::var("CXX").ok();
    let known = ["c++", "g++-15", "g++-14", "g++-13", "clang++"].map(str::to_owned);
    named
        .clone()
        .into_iter()
        .chain(known.into_iter().filter(|_| named.is_none()))
        .find(|compiler| has_format(compiler).unwrap_or(false))
        .ok_or_else(|| {
            "no C++ compiler with std::format was found: install GCC 13 or newer (g++-14) or name one with CXX".into()
        })
}

fn has_format(compiler: &str) -> Result<bool> {
    let mut child = Command::new(compiler)
        .args(["-std=c++20", "-fsyntax-only", "-x", "c++", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(b"#include <format>\nauto x = std::format(\"{}\", 1);\n")?;
    }
    Ok(child.wait()?.success())
}

/// The functions are wrappers of one call each: more optimisation only takes longer.
const FLAGS: &[&str] = &["-std=c++20", "-O1"];

/// The shim: what Mlx adds to mlx-c.
const SHIM: &[&str] = &[
    "cpp/allocator.cpp",
    "cpp/complex.cpp",
    "cpp/error.cpp",
    "cpp/host_kernel.cpp",
];

fn compile(mlx: &Path, mlx_c: &Path, out: &Path) -> Result<()> {
    let compiler = cxx()?;
    let shared = compile_mlx_c(mlx, mlx_c, out, &compiler)?;
    compiling(mlx, mlx_c, &compiler)
        .files(SHIM)
        .try_compile("mlx_shim")?;
    let runtime = if cfg!(target_os = "macos") {
        "c++"
    } else {
        "stdc++"
    };
    println!("cargo:rustc-link-search=native={}", shared.display());
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=mlxc");
    println!("cargo:rustc-link-lib=static=mlx_shim");
    println!("cargo:rustc-link-lib=dylib={runtime}");
    Ok(())
}

/// Compiles mlx-c, or takes what an earlier run made: cargo runs this script once per set of
/// packages that it builds together, and the sources take minutes. Answers the archive's folder.
fn compile_mlx_c(mlx: &Path, mlx_c: &Path, out: &Path, compiler: &str) -> Result<PathBuf> {
    let mut key = DefaultHasher::new();
    (mlx, mlx_c, compiler, FLAGS).hash(&mut key);
    let shared = target_dir(out)?.join(format!("mlx-c-{:016x}", key.finish()));
    let archive = shared.join("libmlxc.a");

    if !archive.exists() {
        let mut sources: Vec<PathBuf> = fs::read_dir(mlx_c.join("mlx/c"))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "cpp"))
            // Its error handler prints and exits the process; cpp/error.cpp stands in for it.
            .filter(|path| path.file_name().is_some_and(|name| name != "error.cpp"))
            .collect();
        sources.sort();
        compiling(mlx, mlx_c, compiler)
            .files(sources)
            .try_compile("mlxc")?;
        fs::create_dir_all(&shared)?;
        // Renamed into place, since another run may be at the same.
        fs::rename(out.join("libmlxc.a"), &archive)?;
    }
    Ok(shared)
}

fn compiling(mlx: &Path, mlx_c: &Path, compiler: &str) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .compiler(compiler)
        .include(mlx.join("include"))
        .include(mlx_c)
        .flag(format!("-ffile-prefix-map={}=mlx-c", mlx_c.display()))
        .flags(FLAGS)
        .debug(false)
        .warnings(false)
        .cargo_warnings(false)
        .cargo_metadata(false);
    build
}

/// Cargo's target folder, four above the one given to this script.
fn target_dir(out: &Path) -> Result<&Path> {
    Ok(out
        .ancestors()
        .nth(4)
        .ok_or("OUT_DIR is not in a target folder")?)
}

fn bind(mlx_c: &Path, out: &Path) -> Result<()> {
    bindgen::Builder::default()
        .header(mlx_c.join("mlx/c/mlx.h").display().to_string())
        .header("cpp/shim.h")
        .clang_arg(format!("-I{}", mlx_c.display()))
        .allowlist_function("_?mlx_.*")
        .blocklist_function("mlx_set_error_handler|_mlx_error|mlx_.*_tostring")
        .allowlist_type("mlx_.*")
        .allowlist_var("mlx_ffi_complex")
        .prepend_enum_name(false)
        .layout_tests(false)
        .generate_comments(false)
        .generate()?
        .write_to_file(out.join("bindings.rs"))?;
    Ok(())
}

/// The Fortran libraries that a BLAS needs. A release brings them along, and the NIF must name them
/// itself: its RUNPATH is not searched for what another library needs.
fn fortran(blas: &Path) -> Result<Vec<PathBuf>> {
    if cfg!(target_os = "macos") {
        return Ok(Vec::new());
    }
    let output = Command::new("ldd").arg(blas).output()?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.contains("libgfortran") || line.contains("libquadmath"))
        .filter_map(|line| line.split("=>").nth(1)?.split_whitespace().next())
        .map(PathBuf::from)
        .collect())
}

/// The order matters: a loader searches a library's dependencies in the order in which they were
/// linked, so the BLAS must precede libmlx, which brings a slow one of its own.
fn link(mlx: &Path, blas: Option<&Path>, out: &Path) -> Result<()> {
    let lib = mlx.join("lib");
    let mut paths = vec![lib.clone()];
    let mut kind = "none";
    if let Some(file) = blas {
        let folder = file.parent().ok_or("MLX_BLAS names no file")?;
        let name = file
            .file_stem()
            .and_then(|stem| stem.to_str()?.strip_prefix("lib"))
            .ok_or("MLX_BLAS must name a shared library such as /opt/blas/libopenblas.so")?;
        if !file.exists() {
            return Err(format!("MLX_BLAS names {}, which does not exist", file.display()).into());
        }
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-lib=dylib={name}");
        kind = if name.contains("openblas") {
            "openblas"
        } else {
            "other"
        };
        paths.insert(0, folder.to_owned());
        println!(
            "cargo:fortran={}",
            env::join_paths(fortran(file)?)?.to_string_lossy()
        );
    }
    println!("cargo:rustc-cfg=blas=\"{kind}\"");
    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=dylib=mlx");
    let path = env::join_paths(&paths)?;
    println!("cargo:libs={}", path.to_string_lossy());

    // Read by the Mix compiler, which copies these files beside the NIF.
    let library = if cfg!(target_os = "macos") {
        "libmlx.dylib"
    } else {
        "libmlx.so"
    };
    let blas = blas
        .map(|file| file.display().to_string())
        .unwrap_or_default();
    let summary = format!("mlx={}\nblas={blas}\n", lib.join(library).display());
    fs::write(target_dir(out)?.join("mlx-libraries.txt"), summary)?;
    Ok(())
}
