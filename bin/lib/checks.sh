# shellcheck shell=bash
# Sourced by bin/setup: looks for what building Mlx needs.
#
# run_checks sets `missing` (names without which nothing works), `wanted` (OpenBLAS, without which
# it works slowly), `report_lines`, and `found_files`, whose presence later proves the machine good.

stamp=target/setup-ok

run_checks() {
  missing="" wanted="" report_lines="" found_files=""
  check elixir "Elixir 1.17 or newer" find_elixir
  check compiler "C++ compiler with std::format" find_compiler
  check linker "C linker (cc)" find_linker
  check libclang "libclang, for bindgen" find_libclang
  check pip "Python 3 with pip" find_pip
  check cargo "Rust 1.85 or newer" find_cargo
  if [ "$(uname -s)" != Darwin ] && [ "${MLX_BLAS:-}" != none ]; then
    check openblas "OpenBLAS 0.3.29 or newer" find_openblas
  fi
}

# check NAME TITLE FINDER: the finder prints the file it found and, after a tab, words about it.
check() {
  local answer file words
  if answer="$("$3")"; then
    file="${answer%%$'\t'*}" words="${answer#*$'\t'}"
    report_lines+="  ok       $2: $words"$'\n'
    found_files+="$file"$'\n'
  elif [ "$1" = openblas ]; then
    report_lines+="  missing  $2 (optional): ${answer:-not found}"$'\n'
    wanted=" openblas"
  else
    report_lines+="  missing  $2: ${answer:-not found}"$'\n'
    missing+=" $1"
  fi
}

report() {
  printf '%s' "$report_lines" >&2
}

# at_least WANTED FOUND, as version numbers.
at_least() {
  [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

find_elixir() {
  local path text version
  path="$(command -v elixir)" || return 1
  text="$("$path" --version 2>/dev/null | tail -n 1)"
  version="$(printf '%s' "$text" | sed -n 's/^Elixir \([0-9.]*\).*/\1/p')"
  printf '%s\t%s' "$path" "$text"
  [ -n "$version" ] && at_least 1.17 "$version" && command -v mix >/dev/null
}

find_compiler() {
  local compiler candidates
  candidates="${CXX:-c++ g++-15 g++-14 g++-13 clang++}"
  for compiler in $candidates; do
    if has_format "$compiler"; then
      printf '%s\t%s' "$(command -v "$compiler")" "$compiler"
      return 0
    fi
  done
  printf 'none of %s has it' "$candidates"
  return 1
}

has_format() {
  command -v "$1" >/dev/null 2>&1 || return 1
  printf '#include <format>\n#include <string>\nstd::string text = std::format("{}", 1);\n' |
    "$1" -std=c++20 -fsyntax-only -x c++ - >/dev/null 2>&1
}

find_linker() {
  local path
  path="$(command -v cc)" || return 1
  printf '%s\t%s' "$path" "$path"
}

find_libclang() {
  local path
  for path in ${LIBCLANG_PATH:+"$LIBCLANG_PATH"/libclang*} /usr/lib/llvm*/lib/libclang*.so* \
    /usr/lib/*/libclang*.so* /usr/lib64/libclang*.so* /usr/lib64/llvm*/lib/libclang*.so* \
    /usr/lib/libclang*.so* /opt/homebrew/opt/llvm/lib/libclang.dylib \
    /Library/Developer/CommandLineTools/usr/lib/libclang.dylib \
    /Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib/libclang.dylib; do
    case "$path" in
      *libclang-cpp*) ;;
      *) [ -e "$path" ] && printf '%s\t%s' "$path" "$path" && return 0 ;;
    esac
  done
  return 1
}

find_pip() {
  local path
  path="$(command -v python3)" || return 1
  if ! "$path" -c 'import sys; sys.exit(sys.version_info < (3, 8))'; then
    printf '%s is older than 3.8' "$("$path" --version)"
    return 1
  fi
  if ! "$path" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("pip") is None)'; then
    printf '%s has no pip' "$path"
    return 1
  fi
  printf '%s\t%s' "$path" "$("$path" --version)"
}

find_cargo() {
  local path version
  path="$(command -v cargo)" || return 1
  version="$("$path" --version 2>/dev/null)" || version=""
  printf '%s\t%s' "$path" "${version:-it does not start}"
  [ -n "$version" ] && at_least 1.85 "$(printf '%s' "$version" | cut -d' ' -f2)"
}

# The library says its version itself; a pkg-config file may be missing or that of another build.
find_openblas() {
  local path version best=""
  if [ -n "${MLX_BLAS:-}" ]; then
    printf '%s\tMLX_BLAS=%s' "$MLX_BLAS" "$MLX_BLAS"
    [ -e "$MLX_BLAS" ]
    return
  fi
  for path in /usr/lib/*/openblas-pthread/libopenblas.so /usr/lib/*/libopenblas.so \
    /usr/lib64/libopenblas.so /usr/lib/libopenblas.so /usr/local/lib/libopenblas.so; do
    [ -e "$path" ] || continue
    version="$(openblas_version "$path")"
    best="${best:-${version:-unknown version} in $path}"
    if [ -n "$version" ] && at_least 0.3.29 "$version"; then
      printf '%s\t%s in %s' "$path" "$version" "$path"
      return 0
    fi
  done
  printf '%s' "$best"
  return 1
}

openblas_version() {
  python3 - "$1" 2>/dev/null <<'PYTHON'
import ctypes, sys
config = ctypes.CDLL(sys.argv[1]).openblas_get_config
config.restype = ctypes.c_char_p
print(config().decode().split()[1])
PYTHON
}

fingerprint() {
  printf '%s\n' "$(cksum bin/setup bin/lib/*.sh)" "CXX=${CXX:-}" "BLAS=${MLX_BLAS:-}" \
    "$(command -v elixir cargo python3 cc 2>/dev/null || true)"
}

# True when these files passed before and are all still there.
known_good() {
  local path
  [ -r "$stamp" ] && [ "$(sed '/^--$/,$d' "$stamp")" = "$(fingerprint)" ] || return 1
  while read -r path; do
    [ -e "$path" ] || return 1
  done < <(sed '1,/^--$/d' "$stamp")
}

# Not without OpenBLAS, so that its warning comes again.
remember_good() {
  if [ -z "$wanted" ] && mkdir -p target 2>/dev/null && [ -w target ]; then
    { fingerprint; echo --; printf '%s' "$found_files"; } >"$stamp"
  fi
}
