import Config

# Where the tests run: every result's type and shape is compared with what Nx expects, tensors are
# inspected as Nx's doctests print them, nothing falls back unnoticed, and no compilation says that
# the machine is busy.
if config_env() == :test do
  config :mlx,
    check_results: :eager,
    add_backend_on_inspect: false,
    fallback: :raise,
    compile_log: false
end
