defmodule Mlx.Compiler.Key do
  @moduledoc false
  # What tells one function from another in the cache. Keys are copied, hashed and compared without
  # regard to what their terms share, while an expression that shares its nodes may be worth more
  # terms than there is memory. Functions do capture expressions: those of `Nx.Defn.Graph` return
  # them. In a key, the identifier of a node stands for it, and each node is described once: the
  # identifier does not say all, since a graph may number the parameters of a node anew.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  @doc """
  The key of a function.

  A capture such as `&Mod.fun/1` stays equal when its module is compiled again, as happens in every
  Livebook, so its version is part of it; other functions do not.
  """
  @spec of(fun) :: term
  def of(fun) do
    case :erlang.fun_info(fun, :type) do
      {:type, :external} ->
        {:module, module} = :erlang.fun_info(fun, :module)
        {fun, module.module_info(:md5)}

      {:type, :local} ->
        if expression?(fun), do: named(fun, %{}), else: fun
    end
  end

  defp expression?(%T{data: %Expr{}}), do: true
  defp expression?(%T{}), do: false
  defp expression?([head | tail]), do: expression?(head) or expression?(tail)
  defp expression?(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> expression?()
  defp expression?(%{} = map), do: map |> :maps.values() |> expression?()
  defp expression?(fun) when is_function(fun), do: fun |> captured() |> expression?()
  defp expression?(_term), do: false

  # The term without expressions, and their nodes by identifier.
  defp named(%T{data: %Expr{id: id, op: op, args: args}} = t, nodes) do
    if is_map_key(nodes, id) do
      {%{t | data: id}, nodes}
    else
      {args, nodes} = named(args, Map.put(nodes, id, nil))
      {%{t | data: id}, %{nodes | id => {op, args}}}
    end
  end

  defp named(%T{} = t, nodes), do: {t, nodes}

  defp named([head | tail], nodes) do
    {head, nodes} = named(head, nodes)
    {tail, nodes} = named(tail, nodes)
    {[head | tail], nodes}
  end

  defp named(tuple, nodes) when is_tuple(tuple) do
    {list, nodes} = tuple |> Tuple.to_list() |> named(nodes)
    {{:tuple, list}, nodes}
  end

  defp named(%{} = map, nodes) do
    {pairs, nodes} =
      map |> :maps.to_list() |> Enum.sort_by(&elem(&1, 0)) |> Enum.map_reduce(nodes, &pair/2)

    {{:map, pairs}, nodes}
  end

  defp named(fun, nodes) when is_function(fun) do
    code = for item <- [:module, :new_index, :new_uniq, :arity], do: :erlang.fun_info(fun, item)
    {env, nodes} = fun |> captured() |> named(nodes)
    {{:fun, code, env}, nodes}
  end

  defp named(term, nodes), do: {term, nodes}

  defp pair({key, value}, nodes) do
    {value, nodes} = named(value, nodes)
    {{key, value}, nodes}
  end

  defp captured(fun) do
    {:env, env} = :erlang.fun_info(fun, :env)
    env
  end
end
