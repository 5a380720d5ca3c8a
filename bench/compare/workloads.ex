defmodule Bench.Workloads do
  @moduledoc """
  What is measured: one row per workload, at full size and at one that takes next to no time.

  A row names a function, which `Bench.Functions` has in Nx and each file of `bench/peers` in Python,
  and its inputs. Everybody reads the same inputs from files, see `Bench.Inputs`.
  """

  @typedoc """
  * `:mode` - how the function is called:
    `:eager` and `:jit` call it with the inputs; `:step` jits it, and gives its results but the last
    back to it as its first argument; `:memory` does as `:step` and counts bytes; `:custom` and
    `:gauge` call it once, for a function that does everything, or returns figures of its own.
  * `:pack` - so many of the inputs are the first argument, as a tuple.
  * `:per` - a call counts as so many operations.
  * `:gauges` - names and units of the figures of `:gauge` and `:memory`.
  * `:check` - what has to agree: `:values`, `:magnitudes` (where a sign is anybody's choice),
    `:moments` (random numbers: mean and deviation), or `:nothing`.
  * `:tolerance` - how far a number may be off, as a part of itself and of the result's deviation.
  * `:binary` - whether Nx.BinaryBackend does the full size in bearable time.
  * `:targets` - `{peer, factor}`: Mlx is to take at most so many times what the peer takes.
  """
  @type row :: %{
          group: String.t(),
          name: String.t(),
          function: atom,
          inputs: [Bench.Inputs.input()],
          mode: :eager | :jit | :step | :memory | :custom | :gauge,
          read: boolean,
          pack: non_neg_integer,
          options: keyword(pos_integer),
          per: pos_integer,
          gauges: [{String.t(), String.t()}],
          check: :values | :magnitudes | :moments | :nothing,
          tolerance: float,
          binary: boolean,
          targets: [{String.t(), float}]
        }

  @defaults %{
    mode: :jit,
    read: true,
    pack: 0,
    options: [],
    per: 1,
    gauges: [],
    check: :values,
    tolerance: 1.0e-4,
    binary: false,
    targets: []
  }

  # By the names of full-sized rows. MLX in Python and EMLX are the same library's other faces; JAX and
  # PyTorch are what the processor can do.
  @targets %{
    "add, eager, 4, not read" => [{"emlx", 0.21}, {"jax", 0.41}, {"torch", 2.5}],
    "add, eager, 4, read" => [{"emlx", 0.6}, {"mlx-python", 1.9}],
    "exp(sin(x)*2+1), jit, 4, not read" => [{"emlx", 0.28}],
    "exp(sin(x)*2+1), jit, 4, read" => [{"emlx", 0.38}, {"mlx-python", 2.5}],
    "exp(sin(x)*2+1), jit, 1048576" => [{"mlx-python", 0.04}, {"jax", 0.69}, {"torch", 1.8}],
    "mlp, batch 128, forward" => [{"mlx-python", 0.04}, {"jax", 1.2}, {"torch", 2.2}],
    "mlp, batch 128, training step" => [{"mlx-python", 0.04}, {"jax", 1.2}, {"torch", 1.2}],
    "f32 1024x1024" => [{"mlx-python", 0.02}, {"jax", 1.2}, {"torch", 1.5}],
    "bf16 1024x1024" => [{"mlx-python", 0.03}],
    "while, 100 times sin(x)+1, 4" => [{"emlx", 0.09}],
    "16 processes, each an add and its reading" => [{"emlx", 0.25}],
    "3x3, 8x16x32x32" => [{"emlx", 0.2}, {"mlx-python", 0.2}],
    "3x3, gradients, 8x16x32x32" => [{"emlx", 0.2}, {"mlx-python", 0.2}],
    "max pool 2x2, 8x16x32x32" => [{"emlx", 0.2}],
    "max pool 2x2, gradient, 8x16x32x32" => [{"emlx", 0.2}]
  }

  @doc "What Mlx is to reach, by the names of full-sized rows."
  @spec targets() :: %{String.t() => [{String.t(), float}]}
  def targets, do: @targets

  @doc "The names of the groups, in their order."
  @spec groups() :: [String.t()]
  def groups, do: :full |> all() |> Enum.map(& &1.group) |> Enum.uniq()

  @doc "All rows, of the `:full` size or the `:smoke` one."
  @spec all(:full | :smoke) :: [row]
  def all(size) do
    n = fn full, smoke -> if size == :full, do: full, else: smoke end

    dispatch() ++
      elementwise(n.(1_048_576, 64)) ++
      reduce(n.(1024, 8)) ++
      matmul(n) ++
      conv(n) ++
      linalg(n.(256, 6)) ++
      index(n) ++
      random(n.(1_048_576, 4096)) ++
      models(n) ++
      control(n.(100, 5)) ++
      transfer(n.(16_777_216, 256)) ++ concurrency(n) ++ memory(n) ++ compile(n.(64, 2))
  end

  @doc "The functions of all rows, each of which every peer has, or a reason for not having it."
  @spec functions() :: [atom]
  def functions, do: :full |> all() |> Enum.map(& &1.function) |> Enum.uniq()

  defp dispatch do
    four = normal({4})

    for {name, function, mode, inputs} <- [
          {"add", :add, :eager, [four, four]},
          {"exp(sin(x)*2+1)", :chain, :jit, [four]}
        ],
        read <- [false, true] do
      name = "#{name}, #{mode}, 4, #{if read, do: "read", else: "not read"}"
      row("dispatch", name, function, inputs, mode: mode, read: read, binary: true)
    end
  end

  defp elementwise(n) do
    x = normal({n})

    for {name, function, inputs} <- [
          {"exp(sin(x)*2+1)", :chain, [x]},
          {"gelu", :gelu, [x]},
          {"axpy", :axpy, [x, x]},
          {"where and casts", :where_cast, [x, x]}
        ],
        mode <- [:jit, :eager],
        mode == :jit or function == :chain,
        do: row("elementwise", "#{name}, #{mode}, #{n}", function, inputs, mode: mode)
  end

  defp reduce(n) do
    x = normal({n, n})
    row = normal({n})

    for {name, function, inputs} <- [
          {"sum of all", :sum_all, [x]},
          {"mean of rows", :mean_rows, [x]},
          {"mean of columns", :mean_columns, [x]},
          {"softmax", :softmax, [x]},
          {"layer norm", :layer_norm, [x, row, row]}
        ],
        do: row("reduce", "#{name}, #{n}x#{n}", function, inputs, [])
  end

  defp matmul(n) do
    for {type, size} <- [f32: 64, f32: 256, f32: 512, f32: 1024, bf16: 256, bf16: 1024, s32: 256] do
      size = n.(size, div(size, 64))
      shape = {size, size}
      x = if type == :s32, do: integers(shape, 1000), else: normal(shape, type)
      tolerance = if type == :bf16, do: 2.0e-2, else: 1.0e-4
      row("matmul", "#{type} #{size}x#{size}", :matmul, [x, x], tolerance: tolerance)
    end
  end

  defp conv(n) do
    {batch, size} = {n.(8, 1), n.(32, 6)}
    x = normal({batch, n.(16, 2), size, size})
    kernel = normal({n.(32, 3), n.(16, 2), 3, 3})
    shape = "#{batch}x#{n.(16, 2)}x#{size}x#{size}"

    [
      row("conv", "3x3, #{shape}", :conv, [x, kernel], []),
      row("conv", "3x3, gradients, #{shape}", :conv_grad, [x, kernel], []),
      row("conv", "max pool 2x2, #{shape}", :max_pool, [x], []),
      row("conv", "max pool 2x2, gradient, #{shape}", :max_pool_grad, [x], [])
    ]
  end

  defp linalg(n) do
    square = normal({n, n})
    definite = {:definite, {n, n}, :f32}
    graded = {:graded, {n, n}, :f32}

    [
      row("linalg", "cholesky, #{n}x#{n}", :cholesky, [definite], []),
      row("linalg", "qr, #{n}x#{n}", :qr, [square], check: :magnitudes, tolerance: 1.0e-2),
      row("linalg", "svd, #{n}x#{n}", :svd, [graded], check: :magnitudes, tolerance: 1.0e-2),
      row("linalg", "solve, #{n}x#{n}", :solve, [definite, normal({n})], [])
    ]
  end

  defp index(n) do
    {count, rows, columns} = {n.(1_048_576, 50), n.(8192, 8), n.(128, 4)}
    table = normal({rows, columns})
    places = {:integers, {rows}, {:s32, rows}}

    [
      row("index", "sort, #{count}", :sort, [normal({count})], []),
      row("index", "argsort, #{count}", :argsort, [{:distinct, {count}, :f32}], []),
      row("index", "take rows, #{rows}x#{columns}", :take, [table, places], []),
      row("index", "add to rows, #{rows}x#{columns}", :scatter_add, [table, places, table], [])
    ]
  end

  defp random(n) do
    for {name, function} <- [{"uniform", :uniform}, {"normal", :normal}] do
      opts = [options: [n: n], check: :moments, tolerance: 0.1]
      row("random", "#{name}, #{n}", function, [{:key, {2}, :u32}], opts)
    end
  end

  defp models(n) do
    for {name, function, {params, forward, step}} <- [
          {"mlp, batch #{n.(128, 4)}", :mlp, mlp(n)},
          {"cnn, batch #{n.(32, 2)}", :cnn, cnn(n)},
          {"transformer block, batch #{n.(4, 2)}", :transformer, transformer(n)}
        ],
        {part, suffix, mode, inputs} <- [
          {"forward", "forward", :jit, forward},
          {"training step", "step", :step, step}
        ] do
      opts = [mode: mode, pack: length(params), tolerance: 1.0e-3]
      row("models", "#{name}, #{part}", :"#{function}_#{suffix}", params ++ inputs, opts)
    end
  end

  # Each model: its weights, what goes forward, and what a step takes.
  defp mlp(n) do
    {batch, image, hidden} = {n.(128, 4), n.(784, 12), n.(512, 8)}
    x = normal({batch, image})

    {layer(image, hidden) ++ layer(hidden, hidden) ++ layer(hidden, 10), [x],
     [x, integers({batch}, 10)]}
  end

  defp cnn(n) do
    {batch, size} = {n.(32, 2), n.(28, 8)}
    x = normal({batch, 1, size, size})
    kernels = [weights({8, 1, 3, 3}, 9), weights({16, 8, 3, 3}, 72)]
    {kernels ++ layer(16, 10), [x], [x, integers({batch}, 10)]}
  end

  defp transformer(n) do
    {batch, length, width} = {n.(4, 2), n.(64, 4), n.(128, 8)}
    x = normal({batch, length, width})
    norm = [normal({width}), normal({width})]

    params =
      norm ++
        [weights({width, 3 * width}, width), weights({width, width}, width)] ++
        norm ++ [weights({width, 4 * width}, width), weights({4 * width, width}, 4 * width)]

    {params, [x], [x, x]}
  end

  defp layer(from, to), do: [weights({from, to}, from), weights({to}, from)]

  defp control(times) do
    opts = [options: [times: times], binary: true]
    [row("control", "while, #{times} times sin(x)+1, 4", :counted, [normal({4})], opts)]
  end

  defp transfer(n) do
    x = normal({n})

    for {name, function} <- [{"to the device", :upload}, {"from the device", :download}],
        do: row("transfer", "#{n} f32 #{name}", function, [x], mode: :custom)
  end

  defp concurrency(n) do
    four = normal({4})
    square = normal({n.(700, 8), n.(700, 8)})
    adds = n.(200, 3)
    gauge = [mode: :gauge, check: :nothing, options: [samples: n.(200, 5)]]
    gauges = [{"p50", "ns"}, {"p99", "ns"}]

    [
      row("concurrency", "16 processes, each an add and its reading", :processes, [four, four],
        mode: :custom,
        options: [processes: 16, adds: adds],
        per: 16 * adds,
        binary: true
      ),
      row("concurrency", "an add beside matrix products", :latency, [four, square], [
        {:gauges, gauges} | gauge
      ]),
      row(
        "concurrency",
        "an add beside matrix products, own stream",
        :latency_stream,
        [four, square],
        [{:gauges, gauges} | gauge]
      )
    ]
  end

  defp memory(n) do
    gauges = [{"peak", "bytes"}, {"growth of 50 more", "bytes"}]

    for {name, function, {params, _, inputs}} <- [
          {"mlp", :mlp_step, mlp(n)},
          {"transformer block", :transformer_step, transformer(n)}
        ] do
      opts = [mode: :memory, pack: length(params), tolerance: 1.0e-3, gauges: gauges]
      opts = [{:options, [steps: n.(50, 2)]} | opts]
      row("memory", "training #{name}", function, params ++ inputs, opts)
    end
  end

  defp compile(n) do
    opts = [mode: :custom, options: [pairs: n], binary: true]

    [
      row("compile", "#{2 * n} operations, compiled", :compile, [normal({4})], [
        {:check, :nothing} | opts
      ]),
      row("compile", "#{2 * n} operations, first call", :first_call, [normal({4})], opts)
    ]
  end

  defp normal(shape, type \\ :f32), do: {:normal, shape, type}
  defp weights(shape, from), do: {{:scaled, from}, shape, :f32}
  defp integers(shape, limit), do: {:integers, shape, {:s32, limit}}

  defp row(group, name, function, inputs, opts) do
    @defaults
    |> Map.merge(%{group: group, name: name, function: function, inputs: inputs})
    |> Map.put(:targets, Map.get(@targets, name, []))
    |> Map.merge(Map.new(opts))
  end
end
