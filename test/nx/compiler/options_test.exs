defmodule Mlx.Compiler.OptionsTest do
  @moduledoc """
  Oracle: the documentation of `Mlx.Compiler`; results without options.
  """
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO

  @compiler [compiler: Mlx.Compiler]

  # Every way in.
  defp entrances do
    x = Nx.tensor(1)

    [
      jit: &Nx.Defn.jit_apply(fn x -> Nx.add(x, 1) end, [x], @compiler ++ &1),
      compile: &Nx.Defn.compile(fn x -> Nx.add(x, 1) end, [x], @compiler ++ &1),
      to_program: &Mlx.Compiler.to_program(fn x -> Nx.add(x, 1) end, [x], &1),
      partitions: &Mlx.Compiler.__partitions_options__/1,
      backend: &Mlx.Compiler.__to_backend__/1
    ]
  end

  for {opts, message} <- [
        {[device: :tpu], ~r/a device is :cpu, :gpu or \{:gpu, index\}, got: :tpu/},
        {[debug: nil], ~r/:debug must be true or false, got: nil/},
        {[debug: :yes], ~r/:debug must be true or false, got: :yes/},
        {[fuse: 1], ~r/:fuse must be true or false, got: 1/},
        {[max_concurrency: 0], ~r/:max_concurrency must be a positive integer, got: 0/},
        {[max_concurrency: 1.5], ~r/:max_concurrency must be a positive integer, got: 1.5/},
        {[hooks: %{name: :not_a_function}],
         ~r/:hooks must be a map from .* %\{name: &IO.inspect\/1\}; got :not_a_function for :name/},
        {[hooks: %{name: nil}],
         ~r/got nil for :name\. Leave out a hook that nothing is to serve/},
        {[hooks: %{"name" => &IO.inspect/1}], ~r/got &IO.inspect\/1 for "name"/},
        {[hooks: %{name: &IO.inspect/2}], ~r/got &IO.inspect\/2 for :name/}
      ] do
    test "#{inspect(opts)} raises, whichever way it comes" do
      opts = unquote(Macro.escape(opts))

      for {name, entrance} <- entrances() do
        error = assert_raise ArgumentError, fn -> entrance.(opts) end
        assert Exception.message(error) =~ unquote(Macro.escape(message)), "#{name}"
      end
    end
  end

  test "hooks that are no map raise" do
    for {_name, entrance} <- Keyword.drop(entrances(), [:jit, :compile, :to_program]) do
      assert_raise ArgumentError, ~r/:hooks must be a map .* got: \[name: 1\]/, fn ->
        entrance.(hooks: [name: 1])
      end
    end

    # Nx says so itself.
    for {_name, entrance} <- Keyword.take(entrances(), [:jit, :compile, :to_program]),
        do: assert_raise(ArgumentError, ~r/:hooks/, fn -> entrance.(hooks: [name: 1]) end)
  end

  test "options of others are ignored" do
    opts = [
      batch_keys: [:default],
      batch_key: :default,
      cache: "path",
      cache: true,
      client: :host,
      lazy_transfers: :always,
      garbage_collect: true,
      max_unsupported_type_option: nil,
      global_layer_options: [],
      mode: :inference,
      preallocate_params: true,
      run_options: [],
      seed: 1
    ]

    for {_name, entrance} <- entrances(), do: assert(entrance.(opts))
    assert Nx.to_number(entrances()[:jit].(opts ++ [on_conflict: :force])) == 2
    assert Nx.to_number(entrances()[:compile].(opts).(Nx.tensor(3))) == 4

    assert [[{:device, device} | rest]] = Mlx.Compiler.__partitions_options__(opts)
    assert rest == opts
    assert Mlx.Compiler.__to_backend__(opts) == {Mlx.Backend, device: device}
  end

  test "of a key that is there twice the first counts" do
    assert Nx.to_number(entrances()[:jit].(debug: false, debug: true)) == 2
    assert capture_io(fn -> entrances()[:jit].(debug: false, debug: true) end) == ""
    assert capture_io(fn -> entrances()[:jit].(debug: true, debug: false) end) =~ "return"
    partitions = Mlx.Compiler.__partitions_options__(max_concurrency: 2, max_concurrency: 3)
    assert length(partitions) == 2
  end

  test ":fuse gives the bits of operation by operation, true and false" do
    t = Nx.backend_copy(Nx.sin(Nx.iota({64}, type: :f32)), Mlx.Backend)
    fun = fn x -> Nx.exp(Nx.subtract(Nx.multiply(Nx.sin(x), 2), Nx.divide(x, 3))) end
    eager = Nx.to_binary(fun.(t))

    for fuse <- [true, false] do
      assert Nx.to_binary(Nx.Defn.jit_apply(fun, [t], @compiler ++ [fuse: fuse])) == eager
    end
  end

  test "a device that was the default stays that of a compiled function" do
    compiled = Nx.Defn.compile(&Nx.negate/1, [Nx.template({}, :s32)], @compiler)
    assert Nx.to_number(compiled.(Nx.tensor(1))) == -1
  end

  test "a hook that gets its callback by option is no part of a saved program" do
    hooked = fn x -> Nx.Defn.Kernel.hook(x, :name) end
    assert %Mlx.Program{} = Mlx.Compiler.to_program(hooked, [Nx.tensor(1)])

    assert_raise Mlx.Error, ~r/hook or runtime_call into a program that is to be saved/, fn ->
      Mlx.Compiler.to_program(hooked, [Nx.tensor(1)], hooks: %{name: & &1})
    end
  end
end
