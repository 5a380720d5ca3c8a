defmodule Mlx.CompilerCase do
  @moduledoc false
  # Tests of compiled functions: the backend under test is the process's default.
  use ExUnit.CaseTemplate

  using do
    quote do
      import Mlx.CompilerCase
    end
  end

  setup do
    Nx.default_backend(Mlx.NxCase.backend())
    :ok
  end

  @doc "What `fun` gives for `args` as one program."
  def jit(fun, args, opts \\ []),
    do: Nx.Defn.jit_apply(fun, args, [compiler: Mlx.Compiler] ++ opts)

  @doc "What the process was sent so far, in order."
  def messages do
    receive do
      message -> [message | messages()]
    after
      0 -> []
    end
  end

  @doc "The slopes of `fun`, a function to a number, at each element of `x`, by steps of `h`."
  def differences(fun, x, h) do
    fun = Nx.Defn.jit(&Nx.as_type(fun.(&1), :f64), compiler: Mlx.Compiler)

    for i <- 0..(Nx.size(x) - 1) do
      step = {Nx.size(x)} |> Nx.iota() |> Nx.equal(i) |> Nx.multiply(Nx.tensor(h, type: :f64))
      step = step |> Nx.reshape(x.shape) |> Nx.as_type(x.type)
      up = Nx.to_number(fun.(Nx.add(x, step)))
      down = Nx.to_number(fun.(Nx.subtract(x, step)))
      (up - down) / (2 * h)
    end
  end
end
