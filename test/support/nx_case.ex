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
      import Mlx.Property
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
      "gpu" -> {:gpu, 0}
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
  What `fun` gives for `args`, operation by operation and as one program of `Mlx.Compiler`, fused
  and not: all have the same bits.
  """
  def both(args \\ [], fun) do
    eager = apply(fun, args)

    for fuse <- [true, false] do
      jitted = Nx.Defn.jit_apply(fun, args, compiler: Mlx.Compiler, fuse: fuse)
      assert bits(jitted) == bits(eager)
    end

    eager
  end

  @doc "The elements of a tensor as bytes, with one NaN for all: which one it is, is not a value."
  def bytes(%T{type: type} = t) do
    case one_nan(type) do
      nil ->
        Nx.to_binary(t)

      {bits, nan?, nan} ->
        for <<x::size(bits)-native <- Nx.to_binary(t)>>,
          into: <<>>,
          do: <<if(nan?.(x), do: nan, else: x)::size(bits)-native>>
    end
  end

  # The bits of a number or of a part of it, whether they are NaN's, and one of them.
  defp one_nan({kind, size}) when kind in [:f, :bf, :c] and size > 8 do
    {bits, exponent} =
      case {kind, size} do
        {:f, 16} -> {16, 5}
        {:bf, 16} -> {16, 8}
        {:f, 32} -> {32, 8}
        {:f, 64} -> {64, 11}
        {:c, 64} -> {32, 8}
        {:c, 128} -> {64, 11}
      end

    infinity = Bitwise.bsl(Bitwise.bsl(1, exponent) - 1, bits - 1 - exponent)
    magnitude = Bitwise.bsl(1, bits - 1) - 1
    {bits, &(Bitwise.band(&1, magnitude) > infinity), infinity + 1}
  end

  defp one_nan(_type), do: nil

  defp bits(container) do
    Nx.Defn.Composite.reduce(container, [], fn t, all ->
      [{t.type, t.shape, t.names, bytes(t)} | all]
    end)
  end

  @doc """
  Asserts that `actual` is on the backend under test and equals `expected`: shape, type, names,
  and every value, floats within `:tolerance` times their type's precision (default 4). That is
  the precision of 1 for smaller numbers, unless `relative: true` asks for theirs.
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
    least = if opts[:relative], do: least(expected.type), else: 1
    pairs = Enum.zip(Nx.to_flat_list(actual), Nx.to_flat_list(expected))

    for {{a, e}, position} <- Enum.with_index(pairs), not close?(a, e, precision, least) do
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

  # Below the least normal number the precision is absolute in any case.
  defp least({:f, 16}), do: 6.2e-5
  defp least({:f, 64}), do: 2.3e-308
  defp least(_type), do: 1.2e-38

  defp close?(%Complex{} = a, %Complex{} = e, precision, least) do
    # The precision of a complex number is that of its modulus.
    with true <- is_number(a.re) and is_number(a.im) and is_number(e.re) and is_number(e.im) do
      size = max(max(abs(e.re), abs(e.im)), least)
      abs(a.re - e.re) <= precision * size and abs(a.im - e.im) <= precision * size
    else
      _ -> close?(a.re, e.re, precision, least) and close?(a.im, e.im, precision, least)
    end
  end

  defp close?(a, a, _precision, _least), do: true

  defp close?(a, e, precision, least) when is_number(a) and is_number(e),
    do: a == e or abs(a - e) <= precision * max(abs(e), least)

  defp close?(_, _, _, _), do: false
end
