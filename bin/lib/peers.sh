# shellcheck shell=bash
# Sourced by bin/bench: a Python of its own in the cache, with the peers that can be installed there.

# Exports MLX_BENCH_PYTHON, which is left empty where there can be none.
install_peers() {
  local folder peer
  folder="${MLX_CACHE_DIR:-$HOME/.cache/mlx}/bench"
  export MLX_BENCH_PYTHON="$folder/bin/python"
  if ! [ -x "$MLX_BENCH_PYTHON" ] && ! python3 -m venv "$folder"; then
    echo "mlx: without the peers in Python: python3 -m venv failed (Debian has it in python3-venv)" >&2
    MLX_BENCH_PYTHON=""
    return 0
  fi
  for peer in $(sed -n 's/^\([a-z]*\)==.*/\1/p' bench/requirements.txt); do
    install_peer "$peer" "$folder/installed-$peer"
  done
}

# install_peer NAME STAMP: each alone, so that one that cannot be had leaves the others.
install_peer() {
  local wanted status=0
  wanted="$(grep "^$1==" bench/requirements.txt)"
  [ "$(cat "$2" 2>/dev/null)" != "$wanted" ] || return 0
  # On Linux MLX comes in two packages, of which the second has the library.
  case "$1-$(uname -s)" in
    mlx-Linux) wanted="${wanted/mlx==/mlx[cpu]==}" ;;
  esac
  echo "mlx: installing $wanted"
  "$MLX_BENCH_PYTHON" -m pip install --disable-pip-version-check -c bench/requirements.txt "$wanted" || status=$?
  if [ "$status" = 0 ]; then
    grep "^$1==" bench/requirements.txt >"$2"
  else
    echo "mlx: without $1: pip could not install it, its last lines say why" >&2
  fi
}
