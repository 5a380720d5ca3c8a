defmodule Mlx.Compiler.Names do
  @moduledoc false
  # Names for the tensors of arguments and results: `x`, `params.dense.kernel`, `state[0]`.

  alias Nx.Tensor, as: T

  @type leaf :: {String.t(), T.t()}

  @doc """
  The tensors of a function's arguments in order, named after the patterns of these where they are
  known. Those that are no tensors are not among `vars`, and then the patterns are of no use.
  """
  @spec arguments([Macro.t()] | nil, [Nx.Container.t()]) :: [leaf]
  def arguments(patterns, vars) when length(patterns) == length(vars) do
    [patterns, vars, Enum.to_list(1..length(vars)//1)]
    |> Enum.zip()
    |> Enum.flat_map(fn {pattern, var, position} -> matched(pattern, var, "arg#{position}") end)
  end

  def arguments(_unknown, vars) do
    vars
    |> Enum.with_index(1)
    |> Enum.flat_map(fn {var, position} -> leaves(var, "arg#{position}") end)
  end

  defp matched({:\\, _meta, [pattern, _default]}, var, name), do: matched(pattern, var, name)

  defp matched({:=, _meta, [{_, _, context} = pattern, _]}, var, name) when is_atom(context),
    do: matched(pattern, var, name)

  defp matched({:=, _meta, [_, pattern]}, var, name), do: matched(pattern, var, name)

  defp matched({variable, _meta, context}, var, _name)
       when is_atom(variable) and is_atom(context),
       do: leaves(var, Atom.to_string(variable))

  defp matched({left, right}, {a, b}, name), do: all([left, right], [a, b], name)

  defp matched({:{}, _meta, patterns}, var, name)
       when is_tuple(var) and tuple_size(var) == length(patterns),
       do: all(patterns, Tuple.to_list(var), name)

  defp matched(_pattern, var, name), do: leaves(var, name)

  defp all(patterns, vars, name) do
    [patterns, vars, Enum.to_list(0..(length(vars) - 1)//1)]
    |> Enum.zip()
    |> Enum.flat_map(fn {pattern, var, i} -> matched(pattern, var, "#{name}[#{i}]") end)
  end

  @doc "The tensors of a container in the order of `Nx.Container`, with the ways to them from `name`."
  @spec leaves(Nx.Container.t(), String.t()) :: [leaf]
  def leaves(%T{} = t, name), do: [{name, t}]

  def leaves(tuple, name) when is_tuple(tuple) do
    tuple
    |> Tuple.to_list()
    |> Enum.with_index()
    |> Enum.flat_map(fn {value, i} -> leaves(value, "#{name}[#{i}]") end)
  end

  # A container says what it holds, and not under which key.
  def leaves(%{} = container, name) do
    keys = if is_struct(container), do: Map.from_struct(container), else: container

    {lists, _left} =
      container
      |> Nx.Container.reduce([], &[&1 | &2])
      |> Enum.reverse()
      |> Enum.map_reduce(keys, fn value, left ->
        {key, left} = taken(value, left)
        {leaves(value, name <> key), left}
      end)

    Enum.concat(lists)
  end

  def leaves(number, name), do: [{name, Nx.to_tensor(number)}]

  defp taken(value, left) do
    case Enum.find(Enum.sort(left), fn {_key, held} -> held == value end) do
      {key, _held} -> {key(key), Map.delete(left, key)}
      nil -> {".?", left}
    end
  end

  defp key(key) when is_atom(key),
    do: ".#{Macro.inspect_atom(:key, key) |> String.trim_trailing(":")}"

  defp key(key), do: "[#{inspect(key)}]"
end
