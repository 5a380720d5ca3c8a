# What the test files of EXLA and Torchx need of these libraries, made of Mlx. Their names are
# rewritten where a module cannot stand in: a backend is a struct, and options of theirs that Mlx
# has none of are refused by Mlx.Backend.

defmodule EXLA do
  @moduledoc false
  @behaviour Nx.Defn.Compiler

  def jit(fun, opts \\ []), do: Nx.Defn.jit(fun, compiled(opts))
  def jit_apply(fun, args, opts \\ []), do: Nx.Defn.jit_apply(fun, args, compiled(opts))
  def compile(fun, args, opts \\ []), do: Nx.Defn.compile(fun, args, compiled(opts))

  defp compiled(opts), do: Keyword.put(opts, :compiler, Mlx.Compiler)

  @impl true
  defdelegate __jit__(key, vars, fun, args, opts), to: Mlx.Compiler
  @impl true
  defdelegate __compile__(key, vars, fun, opts), to: Mlx.Compiler
  @impl true
  defdelegate __partitions_options__(opts), to: Mlx.Compiler
  @impl true
  defdelegate __to_backend__(opts), to: Mlx.Compiler
end

defmodule EXLA.Case do
  @moduledoc false
  use ExUnit.CaseTemplate

  using do
    quote do
      import EXLA.Case
      import Nx.Testing
    end
  end

  def to_binary_backend(tensor), do: Nx.backend_copy(tensor, Nx.BinaryBackend)

  # It chooses between the last digits of two machines; Mlx's are rounded correctly on all.
  def is_mac_arm?, do: false
end

defmodule Torchx.Case do
  @moduledoc false
  use ExUnit.CaseTemplate

  using do
    quote do
      import Nx.Testing
    end
  end
end

defmodule Mlx.Conformance.Peers do
  @moduledoc false

  def rename(ast) do
    Macro.postwalk(ast, fn
      {:__aliases__, meta, [peer, :Backend]} when peer in [:EXLA, :Torchx] ->
        {:__aliases__, meta, [:Mlx, :Backend]}

      {{:__aliases__, _, [:Mlx, :Backend]} = backend, [{:client, _}]} ->
        backend

      other ->
        other
    end)
  end
end
