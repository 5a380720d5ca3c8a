defmodule Mlx.Backend.C128Test do
  @moduledoc """
  The one type that MLX has no arrays for. The oracle is Nx.BinaryBackend, which also computes; what
  is tested is who computes, where results are, and that the policy is asked. It is the
  application's, so nothing runs beside these tests.
  """
  use Mlx.NxCase, async: false

  import Mlx.CompilerCase, only: [jit: 2, jit: 3]

  import ExUnit.CaptureLog

  setup do
    policy = Application.fetch_env!(:mlx, :fallback)
    test = self()
    :telemetry.attach(test, [:mlx, :fallback], &__MODULE__.report/4, test)

    on_exit(fn ->
      Application.put_env(:mlx, :fallback, policy)
      :telemetry.detach(test)
    end)
  end

  def report(_event, _measurements, %{op: op}, pid), do: send(pid, {:fallback, op})

  defp policy(policy), do: Application.put_env(:mlx, :fallback, policy)

  # What has fallen back so far.
  defp fallen do
    receive do
      {:fallback, op} -> [op | fallen()]
    after
      0 -> []
    end
  end

  defp c128(numbers),
    do: Nx.tensor(numbers, type: :c128, backend: Nx.BinaryBackend)

  defp assert_on_binary(actual, expected) do
    assert %Nx.BinaryBackend{} = actual.data
    assert {actual.type, actual.shape} == {expected.type, expected.shape}
    assert Nx.to_binary(actual) == Nx.to_binary(expected)
  end

  describe "creation" do
    test "is the binary backend's, by the policy" do
      policy(:silent)
      expected = c128([1, 2])
      assert_on_binary(Nx.tensor([1, 2], type: :c128), expected)
      assert_on_binary(Nx.as_type(Nx.tensor([1, 2]), :c128), expected)
      assert_on_binary(Nx.backend_copy(expected, backend()), expected)
      assert_on_binary(Nx.backend_transfer(expected, backend()), expected)
      assert_on_binary(Nx.iota({2}, type: :c128), c128([0, 1]))
      assert_on_binary(Nx.eye(1, type: :c128), c128([[1]]))
      assert_on_binary(Nx.tensor(:nan, type: :c128), c128(:nan))
      assert_on_binary(Nx.broadcast(Nx.tensor(3, type: :c128), {2}), c128([3, 3]))

      assert fallen() ==
               [:from_binary, :as_type] ++
                 [:from_binary, :from_binary, :iota, :eye, :from_binary, :constant]
    end

    test "raises where the policy says so, and says what to do" do
      policy(:raise)

      for make <- [
            fn -> Nx.tensor([1, 2], type: :c128) end,
            fn -> Nx.tensor(1, type: :c128) end,
            fn -> Nx.iota({2}, type: :c128) end,
            fn -> Nx.eye(2, type: :c128) end,
            fn -> Nx.as_type(Nx.tensor([1, 2]), :c128) end,
            fn -> Nx.backend_copy(c128([1]), backend()) end,
            fn -> Nx.fft(Nx.tensor([1.0], type: :f64)) end,
            fn -> Nx.fft2(Nx.tensor([[1.0]], type: :f64)) end,
            fn -> Nx.add(c128([1]), Nx.tensor([1])) end,
            fn -> Nx.reduce(c128([1]), Nx.tensor(1), &Nx.add/2) end
          ] do
        error = catch_error(make.())
        assert %Mlx.Error{kind: :unsupported} = error
        assert Exception.message(error) =~ "(c128"
        assert Exception.message(error) =~ "only c64"
        assert Exception.message(error) =~ "config :mlx, fallback: :warn"
      end
    end

    test "warns where the policy says so" do
      policy(:warn)

      assert capture_log(fn -> Nx.fft(Nx.tensor([1.0, 2.0], type: :f64)) end) =~
               "Nx.fft runs on Nx.BinaryBackend"

      assert capture_log(fn -> Nx.fft2(Nx.tensor([[1.0, 2.0]], type: :f64)) end) =~
               "Nx.Block.FFT2 runs on Nx.BinaryBackend"
    end
  end

  describe "operations" do
    setup do
      policy(:silent)
      %{z: c128([Complex.new(1, 2), Complex.new(-3, 0.5)])}
    end

    test "with c128 results stay there", %{z: z} do
      t = Nx.tensor([1.0, 2.0], type: :f64)
      binary = Nx.backend_copy(t, Nx.BinaryBackend)
      assert_on_binary(Nx.add(z, t), Nx.add(z, binary))

      assert_on_binary(
        Nx.multiply(t, Nx.tensor(Complex.new(0, 1))),
        c128([Complex.new(0, 1), Complex.new(0, 2)])
      )

      assert_on_binary(Nx.concatenate([t, z]), Nx.concatenate([binary, z]))
      assert_on_binary(Nx.dot(t, z), Nx.dot(binary, z))
      assert_on_binary(Nx.fft(t), Nx.fft(binary))
      assert_on_binary(Nx.fft2(Nx.new_axis(t, 0)), Nx.fft2(Nx.new_axis(binary, 0)))
      assert_on_binary(Nx.rfft(t), on_binary(fn -> Nx.rfft(binary) end))
      assert_on_binary(Nx.take(z, Nx.tensor([1])), z[1..1])
      assert_on_binary(Nx.reduce(z, Nx.tensor(0), &Nx.add/2), c128(Complex.new(-2, 2.5)))
    end

    test "with other results come back", %{z: z} do
      t = Nx.tensor([Complex.new(1, 2), Complex.new(0, 0)])
      assert_equal(Nx.equal(z, t), [1, 0])
      assert_equal(Nx.logical_or(t, z), [1, 1])
      assert_equal(Nx.select(Nx.tensor([1, 0]), Nx.equal(z, t), 7), [1, 7])
    end

    test "on c128 alone are the binary backend's, and mix with this one", %{z: z} do
      sum = Nx.sum(Nx.multiply(z, z))
      assert_on_binary(sum, Nx.sum(Nx.multiply(z, z)))
      assert fallen() == []
      assert_equal(Nx.add(Nx.real(sum), Nx.tensor([1.0], type: :f64)), [6.75])
    end

    test "of linear algebra run their default functions", %{z: z} do
      a = Nx.stack([z, Nx.tensor([0, 1])])
      assert_on_binary(Nx.LinAlg.determinant(a), c128(Complex.new(1, 2)))
    end
  end

  describe "Mlx.Compiler" do
    test "evaluates a function with c128, in it or around it" do
      policy(:silent)
      t = Nx.tensor([1.0, 2.0], type: :f64)

      assert_equal(jit(&Nx.abs(Nx.fft(&1)), [t]), [3.0, 1.0])
      assert :jit in fallen()
      assert_on_binary(jit(&Nx.fft/1, [t]), Nx.fft(Nx.backend_copy(t, Nx.BinaryBackend)))

      z = c128([Complex.new(1, 2)])
      {real, doubled, untouched} = jit(&{Nx.real(&1), Nx.add(&1, &1), Nx.add(&2, 1)}, [z, t])
      assert_equal(real, Nx.tensor([1.0], type: :f64, backend: Nx.BinaryBackend))
      assert_on_binary(doubled, c128([Complex.new(2, 4)]))
      assert_equal(untouched, [2.0, 3.0])

      compiled = Nx.Defn.compile(&Nx.fft/1, [Nx.template({2}, :f64)], compiler: Mlx.Compiler)
      assert_on_binary(compiled.(t), Nx.fft(Nx.backend_copy(t, Nx.BinaryBackend)))
    end

    test "calls hooks of such a function" do
      policy(:silent)
      test = self()
      fun = fn t -> Nx.Defn.Kernel.hook(Nx.fft(t), :spectrum, &send(test, {:default, &1})) end
      t = Nx.tensor([1.0, 2.0], type: :f64)

      jit(fun, [t])
      assert_received {:default, %Nx.Tensor{type: {:c, 128}}}
      jit(fun, [t], hooks: %{spectrum: &send(test, {:given, &1})})
      assert_received {:given, %Nx.Tensor{type: {:c, 128}}}
    end

    test "raises where the policy says so, and does not save such a program" do
      policy(:raise)
      fun = &Nx.real(Nx.fft(&1))
      error = catch_error(jit(fun, [Nx.tensor([1.0, 2.0], type: :f64)]))
      assert %Mlx.Error{kind: :unsupported} = error
      assert Exception.message(error) =~ "config :mlx, fallback: :warn"

      assert_raise Mlx.Error, ~r/\(c128\).*Nx.Defn.Evaluator/, fn ->
        Mlx.Compiler.to_program(fun, [Nx.template({2}, :f64)])
      end
    end

    test "transforms back to f64 with the precision of f64" do
      policy(:silent)
      t = Nx.tensor([1.0], type: :f64)

      for result <- [Nx.irfft(t, length: 3), jit(&Nx.irfft(&1, length: 3), [t])] do
        assert %Mlx.Backend{} = result.data
        assert_equal(result, Nx.tensor([1 / 3, 1 / 3, 1 / 3], type: :f64))
      end
    end

    test "compiles functions of c64 as ever" do
      policy(:raise)
      assert_equal(jit(&Nx.abs(Nx.fft(&1)), [Nx.tensor([1.0, 2.0])]), [3.0, 1.0])
      assert fallen() == []
    end
  end

  defp on_binary(fun), do: Nx.with_default_backend(Nx.BinaryBackend, fun)
end
