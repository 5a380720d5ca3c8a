import Config

# Where the tests run: every result's type and shape is compared with what Nx expects, tensors are
# inspected as Nx's doctests print them, and nothing falls back unnoticed.
if config_env() == :test do
  config :mlx, check_results: true, add_backend_on_inspect: false, fallback: :raise
end
