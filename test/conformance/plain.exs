defmodule Mlx.Conformance.Plain do
  @moduledoc false
  # The tests compare tensors with `==`, which tells arrays apart and not their values. Before they
  # are compared, all tensors in a term become those of Nx.BinaryBackend, and NaNs the same.

  def plain(%Nx.Tensor{data: %module{}} = t) when module in [Nx.TemplateBackend, Nx.Defn.Expr],
    do: t

  def plain(%Nx.Tensor{} = t) do
    t = Nx.backend_copy(t, Nx.BinaryBackend)
    Nx.with_default_backend(Nx.BinaryBackend, fn -> one_nan(t, t.type) end)
  end

  def plain(%_{} = struct), do: Map.merge(struct, struct |> Map.from_struct() |> plain())
  def plain(%{} = map), do: Map.new(map, fn {key, value} -> {key, plain(value)} end)
  def plain([head | tail]), do: [plain(head) | plain(tail)]

  def plain(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> plain() |> List.to_tuple()

  def plain(other), do: other

  defp one_nan(t, {kind, _} = type) when kind in [:f, :bf],
    do: Nx.select(Nx.is_nan(t), Nx.tensor(:nan, type: type), t)

  defp one_nan(t, _type), do: t

  @doc """
  The syntax tree with each comparison that is asserted, or a condition, by value:
  `plain(left) == plain(right)`.
  """
  def compare_values(ast) do
    Macro.prewalk(ast, fn
      {name, meta, [{:==, at, [left, right]} | rest]} when name in [:assert, :unless] ->
        {name, meta, [{:==, at, [call(left), call(right)]} | rest]}

      other ->
        other
    end)
  end

  @doc """
  The syntax tree with the same random numbers at every run: some tests take any, a few of which
  make matrices that are nearly singular.
  """
  def fix_keys(ast) do
    Macro.prewalk(ast, fn
      {{:., _, [{:__aliases__, _, [:Nx, :Random]}, :key]} = key, meta,
       [{{:., _, [{:__aliases__, _, [:System]}, :unique_integer]}, _, _}]} ->
        {key, meta, [42]}

      other ->
        other
    end)
  end

  defp call(ast), do: {{:., [], [__MODULE__, :plain]}, [], [ast]}
end
