# shellcheck shell=bash
# Sourced by the scripts in bin/. Sets what they all need and defines how they find Nx.

# Rust is often installed for one user only, outside the PATH of a non-login shell.
if ! command -v cargo >/dev/null 2>&1 && [ -x "$HOME/.cargo/bin/cargo" ]; then
  export PATH="$HOME/.cargo/bin:$PATH"
fi

# Elixir warns, and prints badly, where the locale is not UTF-8.
case "${LC_ALL:-${LC_CTYPE:-${LANG:-}}}" in
  *UTF-8 | *utf8 | *UTF8 | *utf-8) ;;
  *) if [ "$(uname -s)" = Darwin ]; then export LC_ALL=en_US.UTF-8; else export LC_ALL=C.UTF-8; fi ;;
esac

# Nx's dependency telemetry is built by rebar3; the system's spares Mix a download.
if [ -z "${MIX_REBAR3:-}" ] && command -v rebar3 >/dev/null 2>&1; then
  MIX_REBAR3="$(command -v rebar3)"
  export MIX_REBAR3
fi

# Sets NX_MISSING to the reason when Nx cannot be had, and then has Mix compile the core only.
choose_nx() {
  NX_MISSING=""
  if [ -n "${MLX_WITHOUT_NX:-}" ]; then
    NX_MISSING="MLX_WITHOUT_NX is set"
  elif [ -d "${MLX_DEPS_PATH:-$HOME/.mlx/deps}/nx" ] || { [ -d deps/nx ] && [ -d deps/scholar ]; }; then
    :
  elif ! mix help hex >/dev/null 2>&1; then
    NX_MISSING="neither Hex nor ${MLX_DEPS_PATH:-~/.mlx/deps}/nx is there: mix local.hex, then mix deps.get"
  elif ! { mix deps.get && mix local.rebar --force --if-missing; } >/dev/null 2>&1; then
    NX_MISSING="mix deps.get could not fetch it: check the network, or put its source in ~/.mlx/deps/nx (complex and telemetry beside it)"
  fi
  if [ -n "$NX_MISSING" ]; then
    export MLX_WITHOUT_NX=1
  fi
}
