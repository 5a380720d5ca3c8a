defmodule Mlx.Compiler.Tracer do
  @moduledoc false
  # A backend whose tensors stand for expressions. `Nx.Defn.Evaluator` hands the function of a
  # reduction over as one that takes tensors and refuses expressions: given these, it builds one.

  @behaviour Nx.Backend

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  @enforce_keys [:expr]
  defstruct [:expr]

  @doc "A tensor that stands for the expression."
  def wrap(%T{data: %Expr{}} = t), do: %{t | data: %__MODULE__{expr: t.data}}
  def wrap(list) when is_list(list), do: Enum.map(list, &wrap/1)
  def wrap(other), do: other

  @doc "The expression that a tensor stands for."
  def unwrap(%T{data: %__MODULE__{expr: expr}} = t), do: %{t | data: expr}
  def unwrap(list) when is_list(list), do: Enum.map(list, &unwrap/1)
  def unwrap(other), do: other

  @impl true
  def init(opts), do: opts

  # What an expression cannot answer, such as a value, it says so itself.
  for {name, arity} <- Nx.Backend.behaviour_info(:callbacks), name != :init do
    args = Macro.generate_arguments(arity, __MODULE__)

    @impl true
    def unquote(name)(unquote_splicing(args)) do
      args = Enum.map([unquote_splicing(args)], &unwrap/1)
      wrap(apply(Expr, unquote(name), args))
    end
  end
end
