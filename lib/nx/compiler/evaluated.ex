defmodule Mlx.Compiler.Evaluated do
  @moduledoc false
  # A function with c128 in it, which no program of MLX can hold. It is evaluated operation by
  # operation, on Mlx.Backend as far as that goes, and c128 on Nx.BinaryBackend, which the policy for
  # fallbacks must have allowed.

  alias Mlx.Backend
  alias Mlx.Backend.Fallback
  alias Nx.Defn.{Composite, Evaluator}

  @doc "Runs `expr`, the result of a traced function, for lazy arguments on `device`."
  @spec run(Nx.Container.t(), [(-> Nx.Tensor.t())], Mlx.Device.t(), map) :: Nx.Container.t()
  def run(expr, args, device, hooks) do
    backend = {Backend, device: device}

    Nx.with_default_backend(backend, fn ->
      [result] = Evaluator.__jit__(nil, [], fn [] -> expr end, [args], hooks: hooks)
      Composite.traverse(result, &Fallback.back(&1, backend))
    end)
  end
end
