defmodule Mlx.NxCase do
  @moduledoc false
  # Tests of what needs Nx and the native side. The process's default backend is Mlx's, on the
  # device of MLX_TEST_DEVICE or the CPU, and the oracle is Nx.BinaryBackend.
  use ExUnit.CaseTemplate

  import ExUnit.Assertions

  alias Nx.Tensor, as: T

  using do
    quote do
      import Mlx.NxCase
      import Mlx.Generators
    end
  end

  setup do
    Nx.default_backend(backend())
    :ok
  end

  @doc "The backend under test."
  def backend, do: {Mlx.Backend, device: device()}

  def device do
    case System.get_env("MLX_TEST_DEVICE", "cpu") do
      "cpu" -> :cpu
      "gpu" -> :gpu
    end
  end

  @doc "A tensor of Nx.BinaryBackend on the backend under test."
  def mlx(%T{} = t), do: Nx.backend_copy(t, backend())
  def mlx(other), do: other

  @doc "Runs `fun` on both backends with the same arguments and compares the results."
  def assert_same(args, fun, opts \\ []) do
    expected = Nx.with_default_backend(Nx.BinaryBackend, fn -> apply(fun, args) end)
    actual = apply(fun, Enum.map(args, &mlx/1))
    assert_equal(actual, expected, [args: args] ++ opts)
  end

  @doc """
  Asserts that `actual` is on the backend under test and equals `expected`: shape, type, names,
  and every value, floats within `:tolerance` times their type's precision (default 4).
  """
  def assert_equal(actual, expected, opts \\ [])

  def assert_equal(actual, expected, opts) when is_tuple(expected) do
    assert tuple_size(actual) == tuple_size(expected)

    for {a, e} <- Enum.zip(Tuple.to_list(actual), Tuple.to_list(expected)),
        do: assert_equal(a, e, opts)
  end

  def assert_equal(%T{} = actual, %T{} = expected, opts) do
    assert %Mlx.Backend{} = actual.data
    assert {actual.type, actual.shape} == {expected.type, expected.shape}
    assert actual.names == expected.names

    precision = Keyword.get(opts, :tolerance, 4) * epsilon(expected.type)
    pairs = Enum.zip(Nx.to_flat_list(actual), Nx.to_flat_list(expected))

    for {{a, e}, position} <- Enum.with_index(pairs), not close?(a, e, precision) do
      flunk("""
      element #{position} differs: #{inspect(a)} instead of #{inspect(e)}

      got: #{inspect(Nx.backend_copy(actual, Nx.BinaryBackend))}
      instead of: #{inspect(expected)}
      operands: #{inspect(opts[:args])}
      """)
    end

    actual
  end

  def assert_equal(%T{} = actual, number, opts) when not is_tuple(number) do
    assert_equal(
      actual,
      Nx.tensor(number, type: actual.type, names: actual.names, backend: Nx.BinaryBackend),
      opts
    )
  end

  defp epsilon({_, 16} = type) when type in [f: 16], do: 1.0e-3
  defp epsilon({:bf, 16}), do: 8.0e-3
  defp epsilon({:f, 64}), do: 2.3e-16
  defp epsilon({kind, _}) when kind in [:f, :c], do: 1.2e-7
  defp epsilon(_integer), do: 0

  defp close?(%Complex{} = a, %Complex{} = e, precision) do
    # The precision of a complex number is that of its modulus.
    with true <- is_number(a.re) and is_number(a.im) and is_number(e.re) and is_number(e.im) do
      size = max(abs(e.re), abs(e.im))

      abs(a.re - e.re) <= precision * max(size, 1) and
        abs(a.im - e.im) <= precision * max(size, 1)
    else
      _ -> close?(a.re, e.re, precision) and close?(a.im, e.im, precision)
    end
  end

  defp close?(a, a, _precision), do: true

  defp close?(a, e, precision) when is_number(a) and is_number(e),
    do: a == e or abs(a - e) <= precision * max(abs(e), 1)

  defp close?(_, _, _), do: false
end
