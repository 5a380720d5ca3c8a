defmodule Mlx.Cases.DevicesTest do
  # Public bug reports about GPUs, as cases. What a CPU can show it shows as well; with a GPU,
  # MLX_TEST_DEVICE=gpu has all of them run there.
  use Mlx.NxCase, async: false

  import Mlx.CompilerCase, only: [jit: 2]

  # On a GPU these have no kernels of their own, and run on the CPU beside it.
  test "A1-10: linear algebra, whatever the device, and what comes of it is on it" do
    a = Nx.tensor([[4.0, 2.0], [2.0, 3.0]])
    near = fn t, other -> assert Nx.to_number(Nx.all_close(t, other, atol: 1.0e-4)) == 1 end

    for run <- [&apply/2, &jit/2] do
      l = run.(&Nx.LinAlg.cholesky/1, [a])
      near.(l, Nx.tensor([[2.0, 0.0], [1.0, 1.4142135]]))
      near.(Nx.dot(l, Nx.transpose(l)), a)

      {q, r} = run.(&Nx.LinAlg.qr/1, [a])
      near.(Nx.dot(q, r), a)

      {u, s, vt} = run.(&Nx.LinAlg.svd/1, [a])
      near.(Nx.dot(Nx.multiply(u, s), vt), a)

      {values, vectors} = run.(&Nx.LinAlg.eigh/1, [a])
      near.(Nx.dot(a, vectors), Nx.multiply(vectors, values))

      {p, l, u} = run.(&Nx.LinAlg.lu/1, [a])
      near.(p |> Nx.dot(l) |> Nx.dot(u), a)

      inverse = run.(&Nx.LinAlg.invert/1, [a])
      near.(Nx.dot(a, inverse), Nx.eye(2))
      assert %Mlx.Backend{} = inverse.data
      assert Mlx.Native.device(inverse.data.ref) == device()
    end
  end

  test "A1-77: two processes call different compiled functions at once" do
    x = Nx.iota({64, 64}, type: :f32)

    functions = [
      {fn x -> Nx.sum(Nx.dot(Nx.divide(x, 4096), Nx.eye(64))) end, 4095 / 2},
      {fn x -> Nx.reduce_max(Nx.add(Nx.multiply(x, 2), 1)) end, 8191.0}
    ]

    until = System.monotonic_time(:millisecond) + 2_000

    for {fun, right} <- functions do
      Task.async(fn ->
        Nx.default_backend(backend())
        fun = Nx.Defn.jit(fun, compiler: Mlx.Compiler)
        calls(fun, x, right, until, 0)
      end)
    end
    |> Task.await_many(30_000)
    |> Enum.each(&assert &1 > 10)
  end

  defp calls(fun, x, right, until, count) do
    assert_in_delta Nx.to_number(fun.(x)), right, right * 1.0e-3

    if System.monotonic_time(:millisecond) < until,
      do: calls(fun, x, right, until, count + 1),
      else: count
  end
end
