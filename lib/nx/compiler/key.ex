defmodule Mlx.Compiler.Key do
  @moduledoc false
  # What tells one function from another in the cache. Keys are copied, hashed and compared without
  # regard to what their terms share, while an expression that shares its nodes may be worth more
  # terms than there is memory. Functions do capture expressions: those of `Nx.Defn.Graph` return
  # them. A node is immutable and has an identifier, which stands for it in a key.

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
        if expression?(fun), do: named(fun), else: fun
    end
  end

  defp expression?(%T{data: %Expr{}}), do: true
  defp expression?(%T{}), do: false
  defp expression?([head | tail]), do: expression?(head) or expression?(tail)
  defp expression?(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> expression?()
  defp expression?(%{} = map), do: map |> :maps.values() |> expression?()
  defp expression?(fun) when is_function(fun), do: fun |> captured() |> expression?()
  defp expression?(_term), do: false

  defp named(%T{data: %Expr{id: id}} = t), do: %{t | data: id}
  defp named(%T{} = t), do: t
  defp named([head | tail]), do: [named(head) | named(tail)]
  defp named(tuple) when is_tuple(tuple), do: {:tuple, tuple |> Tuple.to_list() |> named()}
  defp named(%{} = map), do: :maps.map(fn _key, value -> named(value) end, map)

  defp named(fun) when is_function(fun) do
    code = for item <- [:module, :new_index, :new_uniq, :arity], do: :erlang.fun_info(fun, item)
    {code, fun |> captured() |> named()}
  end

  defp named(term), do: term

  defp captured(fun) do
    {:env, env} = :erlang.fun_info(fun, :env)
    env
  end
end
