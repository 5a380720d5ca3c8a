defmodule Mlx.Compiler.Output do
  @moduledoc false
  # From the container that a function returns to a plan that puts arrays in the place of its
  # tensors. Plans settle once what `Nx.Container` settles at every traversal, above all the order
  # of a map's keys, because a call that returns many tensors spends its time here.

  alias Mlx.Backend
  alias Nx.Defn.Composite
  alias Nx.Tensor, as: T

  @type plan :: Nx.Tensor.t() | {:tuple, [plan]} | {:map, [{term, plan}]} | {:container, struct}

  @doc "The plan of a container of tensors."
  @spec plan(Nx.Container.t()) :: plan
  def plan(%T{} = t), do: template(t)

  def plan(tuple) when is_tuple(tuple),
    do: {:tuple, tuple |> Tuple.to_list() |> Enum.map(&plan/1)}

  def plan(%_{} = struct), do: {:container, Composite.traverse(struct, &template/1)}
  def plan(%{} = map), do: {:map, for({key, value} <- Enum.sort(map), do: {key, plan(value)})}

  # Newer versions of Nx let a caller mark arguments whose memory may be reused. Nothing of that
  # may show in a result.
  defp template(t) do
    case Nx.to_template(t) do
      %{donatable?: _} = template -> Map.put(template, :donatable?, false)
      template -> template
    end
  end

  @doc "The container with the first of `refs` in it, and the rest of them."
  @spec fill(plan, [reference]) :: {Nx.Container.t(), [reference]}
  def fill(%T{} = template, [ref | refs]), do: {%{template | data: %Backend{ref: ref}}, refs}

  def fill({:tuple, plans}, refs) do
    {values, refs} = fill_all(plans, refs)
    {List.to_tuple(values), refs}
  end

  def fill({:map, pairs}, refs) do
    {pairs, refs} = fill_pairs(pairs, refs)
    {:maps.from_list(pairs), refs}
  end

  def fill({:container, struct}, refs), do: Composite.traverse(struct, refs, &fill/2)

  defp fill_all([plan | plans], refs) do
    {value, refs} = fill(plan, refs)
    {values, refs} = fill_all(plans, refs)
    {[value | values], refs}
  end

  defp fill_all([], refs), do: {[], refs}

  defp fill_pairs([{key, plan} | pairs], refs) do
    {value, refs} = fill(plan, refs)
    {pairs, refs} = fill_pairs(pairs, refs)
    {[{key, value} | pairs], refs}
  end

  defp fill_pairs([], refs), do: {[], refs}
end
