defmodule Mlx.Compiler.Export do
  @moduledoc false
  # A compiler whose result is the program instead of running it. Being one, it gets the traced
  # function and its parameters from Nx through the front door.

  @behaviour Nx.Defn.Compiler

  alias Mlx.Compiler.{Build, Closed, Options, Trace, Unsupported}
  alias Mlx.Source
  alias Nx.Defn.Composite
  alias Nx.Tensor, as: T

  @impl true
  def __jit__(key, vars, fun, [_args], opts) do
    hooks = opts |> Options.parse!() |> Options.hook_names()
    params = Composite.flatten_list(vars)
    expr = fun.(vars)

    Build.naming(Source.entry(key), fn ->
      case Trace.run(expr, vars, keep: length(params), hooks: hooks) do
        :c128 -> Unsupported.node!(:c128)
        %{effects: [_ | _]} -> Unsupported.node!(:export)
        trace -> [program(trace, Enum.map(params, &Nx.devectorize/1))]
      end
    end)
  end

  @impl true
  def __compile__(_key, _vars, _fun, _opts), do: raise("a program is exported, not compiled")

  @impl true
  def __partitions_options__(opts), do: [opts]

  @impl true
  def __to_backend__(opts), do: Mlx.Compiler.__to_backend__(opts)

  defp program(trace, params) do
    {instructions, outputs} = Closed.instructions(trace, length(params))
    inputs = for %T{type: type, shape: shape} <- params, do: {Mlx.Type.held!(type), shape}
    Mlx.Program.new(inputs, instructions, outputs)
  end
end
