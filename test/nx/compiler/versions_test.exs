defmodule Mlx.Compiler.VersionsTest do
  @moduledoc """
  What versions of Nx differ in: side effects are `:hook` nodes in Nx 0.13 and `:io_call` nodes
  after it, `:hooks` is then always among the options, and tensors may be marked as donatable. Where
  the version at hand lacks one, the test makes it by hand. Oracle: values computed by hand.
  """
  use Mlx.CompilerCase, async: true

  defmodule Effects do
    import Nx.Defn
    alias Nx.Tensor, as: T

    # The name of a hook that has a callback only if the call gives one, a tag to send, or both.
    deftransform effect(t, opts) do
      callback =
        case {opts[:name], opts[:tag]} do
          {nil, tag} -> {:fn, say(tag)}
          {name, nil} -> {:named, name, nil}
          {name, tag} -> {:named, name, say(tag)}
        end

      if function_exported?(Nx.Defn.Expr, :io_call, 2),
        do: apply(Nx.Defn.Expr, :io_call, [t, callback]),
        else: by_hand(apply(Nx.Defn.Expr, :hook, [t, callback]))
    end

    defp by_hand(%T{data: %{op: :hook} = expr} = t), do: %{t | data: %{expr | op: :io_call}}
    defp say(tag), do: &send(self(), {tag, Nx.to_number(&1)})

    defn flat(a, b) do
      b = effect(b, name: :b)
      a = effect(a, tag: :a)
      a - b
    end

    defn nested(x) do
      y =
        while y = x, y < 20 do
          effect(y * 2, name: :step, tag: :step)
        end

      if Nx.sin(y) > 2, do: y * 1.0, else: Nx.sum(Nx.exp(effect(y, tag: :end))) * 0
    end
  end

  test "io_call nodes are hooks" do
    assert Nx.to_number(jit(&Effects.flat/2, [5, 3], hooks: %{})) == 2
    assert messages() == [a: 5]
    hooks = %{b: &send(self(), {:b, Nx.to_number(&1)})}
    assert Nx.to_number(jit(&Effects.flat/2, [5, 3], hooks: hooks)) == 2
    assert messages() == [b: 3, a: 5]
  end

  test "io_call nodes inside loops and branches" do
    assert Nx.to_number(jit(&Effects.nested/1, [3])) == 0.0
    assert messages() == [step: 6, step: 12, step: 24, end: 24]
    hooks = %{step: fn _ -> send(self(), :other) end}
    assert Nx.to_number(jit(&Effects.nested/1, [10], hooks: hooks)) == 0.0
    assert messages() == [:other, {:end, 20}]
  end

  test "an empty map of hooks is the same function" do
    t = Nx.tensor([1.0])
    fun = fn t -> Nx.add(t, 1.25) end
    jit(fun, [t])
    assert Nx.to_flat_list(jit(fun, [t], hooks: %{})) == [2.25]
    assert Mlx.Compiler.__to_backend__(hooks: %{}) == Mlx.Compiler.__to_backend__([])
    assert [options] = Mlx.Compiler.__partitions_options__(hooks: %{}, device: :cpu)
    assert options[:hooks] == %{}
  end

  describe "arguments marked as donatable" do
    defp donatable(t), do: Map.put(t, :donatable?, true)

    defp gone?(t) do
      Nx.to_binary(t)
      false
    rescue
      Mlx.Error -> true
    end

    test "are deallocated, and no result is marked" do
      {given, kept} = {donatable(Nx.tensor([1.0, 2.0])), Nx.tensor([3.0, 4.0])}
      {sum, same} = jit(fn a, b -> {Nx.add(a, b), a} end, [given, kept])
      assert Nx.to_flat_list(sum) == [4.0, 6.0]
      assert Nx.to_flat_list(same) == [1.0, 2.0]
      assert gone?(given)
      refute gone?(kept)
      refute Map.get(sum, :donatable?, false)
      refute Map.get(same, :donatable?, false)
    end

    test "are no reason to deallocate where they are not marked, for the same function" do
      fun = fn a -> Nx.multiply(a, 2) end
      {given, kept} = {donatable(Nx.tensor([1, 2])), Nx.tensor([1, 2])}

      for t <- [kept, given], do: assert(Nx.to_flat_list(jit(fun, [t])) == [2, 4])
      assert gone?(given)
      refute gone?(kept)
    end

    test "may be unused, twice the same, on another backend, and in containers" do
      unused = donatable(Nx.tensor([1.0]))
      twice = donatable(Nx.tensor([2.0]))
      assert Nx.to_flat_list(jit(fn _, b, c -> Nx.add(b, c) end, [unused, twice, twice])) == [4.0]
      refute gone?(unused)
      assert gone?(twice)

      other = donatable(Nx.tensor([5.0], backend: Nx.BinaryBackend))
      fun = fn %{t: t}, {x} -> Nx.add(t, x) end
      assert Nx.to_flat_list(jit(fun, [%{t: other}, {1}])) == [6.0]
      refute gone?(other)
    end

    test "reach hooks before they go, and those of calls" do
      say = fn t -> send(self(), {:said, Nx.to_flat_list(t)}) end
      given = donatable(Nx.tensor([1, 2]))
      assert Nx.to_flat_list(jit(&Nx.Defn.Kernel.hook(&1, say), [given])) == [1, 2]
      assert_received {:said, [1, 2]}

      given = donatable(Nx.tensor([1, 2]))
      call = &Nx.runtime_call(&1, &1, [], fn t, _ -> Nx.multiply(t, 3) end)
      assert Nx.to_flat_list(jit(call, [given])) == [3, 6]
      assert gone?(given)
    end
  end
end
