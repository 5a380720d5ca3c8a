# shellcheck shell=bash
# Sourced by bin/setup: installs what run_checks found missing (`missing`, `wanted`), or says how.
# shellcheck disable=SC2154

slow="Without OpenBLAS matrix products on the CPU are about 50 times slower."

obtain() {
  local system
  system="$(uname -s)"
  if [ "$system" = Darwin ]; then
    tell "$(brew_commands)"
  elif command -v apt-get >/dev/null 2>&1; then
    debian
  else
    tell "$(other_commands)"
  fi
}

# Shows commands. Stops, unless only OpenBLAS is missing.
tell() {
  if [ -n "$1" ]; then
    printf 'mlx: run these commands, then bin/setup again:\n\n%s\n\n' "$1" >&2
  fi
  if [ -z "$missing" ]; then
    echo "mlx: going on without OpenBLAS. $slow" >&2
    return 0
  fi
  exit 1
}

rust_hint() {
  case " $missing " in
    *" cargo "*) echo "# Rust 1.85 or newer: with rustup, or your system's package cargo where it is new enough" ;;
  esac
}

brew_commands() {
  local names="" name
  for name in $missing; do
    case "$name" in
      elixir) names+=" elixir" ;;
      compiler | linker) echo "xcode-select --install" ;;
      libclang) names+=" llvm" ;;
      pip) names+=" python" ;;
    esac
  done
  [ -z "$names" ] || echo "brew install$names"
  rust_hint
}

other_commands() {
  local names="" name fedora="" like
  like=" $(. /etc/os-release 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}") "
  case "$like" in
    *" fedora "* | *" rhel "*) fedora=1 ;;
  esac
  for name in $missing $wanted; do
    case "$name" in
      elixir) names+=" elixir" ;;
      compiler) [ -n "$fedora" ] && names+=" gcc-c++" || names+=" gcc" ;;
      linker) names+=" gcc" ;;
      libclang) [ -n "$fedora" ] && names+=" clang-devel" || names+=" clang" ;;
      pip) [ -n "$fedora" ] && names+=" python3-pip" || names+=" python-pip" ;;
      openblas) [ -n "$fedora" ] && names+=" openblas-devel" || names+=" openblas" ;;
    esac
  done
  if [ -n "$names" ]; then
    case "$like" in
      *" fedora "* | *" rhel "*) echo "sudo dnf install$names" ;;
      *" arch "*) echo "sudo pacman -S$names" ;;
      *) echo "# with your system's package manager:$names" ;;
    esac
  fi
  rust_hint
}

# Debian 12 is too old for all of this, and takes it from Debian 13; Ubuntu has its own releases.
debian() {
  local release="" script="" names
  if in_sources bookworm; then
    release=trixie
    in_sources trixie || script="$(trixie_source)"$'\n'
  fi
  names="$(debian_names "$release")"
  if [ -z "$names" ]; then
    tell "$(rust_hint)"
    return
  fi
  script+="apt-get update -q"$'\n'
  script+="apt-get install -q -y --no-install-recommends${release:+ -t $release}$names"
  if [ "$(id -u)" != 0 ]; then
    tell "$(printf '# as root:\n%s\n' "$script" && rust_hint)"
    return
  fi
  printf 'mlx: running these commands, which takes a few minutes:\n\n%s\n\n' "$script" >&2
  mkdir -p target
  if ! DEBIAN_FRONTEND=noninteractive bash -e -c "$script" >target/setup.log 2>&1 </dev/null; then
    tail -n 15 target/setup.log >&2
    echo "mlx: apt-get failed (above, and target/setup.log): check the network and /etc/apt, then run bin/setup again." >&2
    exit 1
  fi
}

in_sources() {
  grep -rqsw "^[^#]*$1" /etc/apt/sources.list /etc/apt/sources.list.d
}

debian_names() {
  local name
  for name in $missing $wanted; do
    case "$name" in
      elixir) offers elixir 1.17 "$1" && printf ' elixir erlang-dev erlang-hex' ;;
      compiler) printf ' g++-14' ;;
      linker) printf ' gcc libc6-dev' ;;
      libclang) printf ' libclang-dev' ;;
      pip) printf ' python3 python3-pip ca-certificates' ;;
      openblas) offers libopenblas-pthread-dev 0.3.29 "$1" && printf ' libopenblas-pthread-dev' ;;
    esac
  done
  return 0
}

# offers PACKAGE VERSION RELEASE: whether apt's candidate is new enough, as far as is known: it is
# when the release was chosen for that, or when apt has no lists yet.
offers() {
  local version
  version="$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9.]*\).*/\2/p')"
  [ -n "$3" ] || [ -z "$version" ] || at_least "$2" "$version"
}

# Commands that add Debian 13 with low priority, so that nothing comes from it unasked. The
# archive and its keys are those of this machine's own Debian 12 source, in either format.
trixie_source() {
  local stanza line
  stanza="$(awk 'BEGIN { RS = ""; FS = "\n" }
    /(^|\n)Types:[^\n]*deb/ && /(^|\n)Suites:([^\n]* )?bookworm( |\n|$)/ {
      for (i = 1; i <= NF; i++) {
        if ($i ~ /^#/) continue
        else if ($i ~ /^Types:/) print "Types: deb"
        else if ($i ~ /^Suites:/) print "Suites: trixie"
        else if ($i ~ /^Components:/) print "Components: main"
        else print $i
      }
      exit
    }' /etc/apt/sources.list.d/*.sources 2>/dev/null || true)"
  if [ -n "$stanza" ]; then
    printf "cat > /etc/apt/sources.list.d/trixie-mlx.sources <<'EOF'\n%s\nEOF\n" "$stanza"
  else
    line="$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
      sed -nE 's/^(deb( +\[[^]]*\])? +[^ ]+) +bookworm +.*/\1 trixie main/p' | head -n 1)"
    printf "echo '%s' > /etc/apt/sources.list.d/trixie-mlx.list\n" "$line"
  fi
  printf "printf 'Package: *\\\\nPin: release n=trixie\\\\nPin-Priority: 100\\\\n' > /etc/apt/preferences.d/trixie-mlx\n"
}
