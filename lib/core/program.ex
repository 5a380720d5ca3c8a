defmodule Mlx.Program do
  @moduledoc """
  Programs: computations as data, checked once and run many times, with or without Nx.

  A program has inputs of known types and shapes, instructions, and outputs. Values live in numbered
  slots: the inputs have the first ones, and each instruction's results follow in order. An
  instruction is `{operation, operand_slots}`, where the operation is an atom such as `:add`, or a
  tuple with attributes such as `{:sum_axes, [0], false}`. `operations/0` lists them; their names
  and meanings are MLX's. An attribute of loops, branches and folds is a program of its own, as
  `{number_of_inputs, instructions, outputs}`:

      {{:repeat, 3, {1, [{:add, [0, 0]}], [1]}}, [0]}

      iex> program =
      ...>   Mlx.Program.new(
      ...>     [{{:f, 32}, {2}}, {{:f, 32}, {2}}],
      ...>     [{:add, [0, 1]}, {{:sum_axes, [0], false}, [2]}],
      ...>     [3]
      ...>   )
      iex> x = Mlx.Array.from_binary(<<1.0::float-32-native, 2.0::float-32-native>>, {:f, 32}, {2})
      iex> [sum] = Mlx.Program.run(program, [x, x])
      iex> <<value::float-32-native>> = Mlx.Array.to_binary(sum)
      iex> value
      6.0

  `Mlx.Compiler.to_program/3` makes one from a function over tensors; `save!/2` and `load!/1` keep
  it as a file.
  """

  alias Mlx.{Array, Device, Native, NIF}

  @type slot :: non_neg_integer
  @type instruction :: {atom | tuple, [slot]}
  @type t :: %__MODULE__{
          inputs: [{Array.type(), tuple}],
          instructions: [instruction],
          outputs: [slot],
          native: reference
        }

  @enforce_keys [:inputs, :instructions, :outputs, :native]
  defstruct [:inputs, :instructions, :outputs, :native]

  @magic "MLX program\n"
  @version 1

  @doc """
  A program, checked.

  `inputs` are the types and shapes of the arrays that it takes, `outputs` the slots that it
  returns. Raises `Mlx.Error` for an operation that is not in the table, and for a slot that does
  not exist by then.

      iex> Mlx.Program.new([{{:f, 32}, {2}}], [{:add, [0, 7]}], [1])
      ** (Mlx.Error) program: instruction 0 (add) uses slot 7, and only 1 exist by then
  """
  @spec new([{Array.type(), tuple}], [instruction], [slot]) :: t
  def new(inputs, instructions, outputs)
      when is_list(inputs) and is_list(instructions) and is_list(outputs) do
    %__MODULE__{
      inputs: inputs,
      instructions: instructions,
      outputs: outputs,
      native: Native.build(inputs, instructions, outputs)
    }
  end

  @doc """
  Runs the program and returns its outputs, which may still be to be computed.

  The arrays must have the types and shapes of the program's inputs, and be on one device; if not,
  reading a result raises `Mlx.Error`.

  ## Options

    * `:device` - where to run a program without inputs; the default device if left out. A program
      with inputs runs where they are, and `ArgumentError` is raised if that is elsewhere

  ## Examples

      iex> program = Mlx.Program.new([{{:u, 8}, {2}}], [{{:flip, [0]}, [0]}], [1])
      iex> [flipped] = Mlx.Program.run(program, [Mlx.Array.from_binary(<<1, 2>>, {:u, 8}, {2})])
      iex> Mlx.Array.to_binary(flipped)
      <<2, 1>>
  """
  @spec run(t, [Array.t()], device: Device.t() | :gpu) :: [Array.t()]
  def run(%__MODULE__{native: native}, arrays, opts \\ []) do
    opts = Keyword.validate!(opts, [:device])
    worker = if arrays == [], do: Array.worker(opts)
    refs = Enum.map(arrays, fn %Array{ref: ref} -> ref end)
    if refs != [] and opts[:device], do: check_device(refs, Device.normalize!(opts[:device]))
    for ref <- Native.run_program(native, refs, worker), do: %Array{ref: ref}
  end

  defp check_device(refs, device) do
    home = Native.home(refs)

    home == device ||
      raise ArgumentError,
            "the arrays are on #{inspect(home)}, and so the program cannot run on " <>
              "#{inspect(device)}: leave :device out, or copy the arrays there with Mlx.Array.copy/2"
  end

  @doc """
  The operations with their attributes, as this version of the library has them.

      iex> Mlx.Program.operations()[:sum_axes]
      [:axes, :keep]
  """
  @spec operations() :: [{atom, [atom]}]
  def operations do
    {ops, _types} = NIF.op_table()

    for {name, attributes, _outputs} <- ops,
        do: {String.to_atom(name), Enum.map(attributes, &String.to_atom/1)}
  end

  @doc """
  Writes the program to a file: data only, versioned, with a checksum.

  The file is there in whole or not at all, and one that was there before stays until then. Raises
  `File.Error`.

      iex> program = Mlx.Program.new([{{:u, 8}, {2}}], [], [0])
      iex> path = Path.join(System.tmp_dir!(), "save-#{System.unique_integer([:positive])}.mlxp")
      iex> Mlx.Program.save!(program, path)
      :ok
      iex> File.rm!(path)
      :ok
  """
  @spec save!(t, Path.t()) :: :ok
  def save!(%__MODULE__{} = program, path) do
    part = "#{path}.#{System.pid()}-#{System.unique_integer([:positive])}.part"

    with :ok <- File.write(part, dump(program)),
         :ok <- File.rename(part, path) do
      :ok
    else
      {:error, reason} ->
        File.rm(part)

        raise File.Error,
          reason: reason,
          action: "write the program to",
          path: IO.chardata_to_string(path)
    end
  end

  @doc """
  Reads a program from a file written by `save!/2`, and checks it.

  Raises `File.Error` if the file cannot be read, and `ArgumentError` if it is not such a file, is
  damaged, or was written by a later version. Nothing in a file is ever executed.

      iex> program = Mlx.Program.new([{{:u, 8}, {2}}], [{:negative, [0]}], [1])
      iex> path = Path.join(System.tmp_dir!(), "load-#{System.unique_integer([:positive])}.mlxp")
      iex> Mlx.Program.save!(program, path)
      iex> Mlx.Program.load!(path).instructions
      [negative: [0]]
      iex> File.rm!(path)
      :ok
  """
  @spec load!(Path.t()) :: t
  def load!(path) do
    case path |> File.read!() |> parse() do
      {:ok, program} -> program
      {:error, reason} -> raise ArgumentError, "#{path} #{reason}"
    end
  end

  defp dump(%__MODULE__{inputs: inputs, instructions: instructions, outputs: outputs}) do
    data = :erlang.term_to_binary({inputs, instructions, outputs}, [:deterministic])
    [@magic, @version, :erlang.md5(data), data]
  end

  defp parse(<<@magic, @version, checksum::binary-16, data::binary>>) do
    if :erlang.md5(data) == checksum do
      # The names of all operations, so that a safe reading knows them.
      operations()
      {inputs, instructions, outputs} = :erlang.binary_to_term(data, [:safe])
      {:ok, new(inputs, instructions, outputs)}
    else
      {:error, "is damaged: its checksum does not match; copy or make it again"}
    end
  rescue
    error in [ArgumentError, MatchError, FunctionClauseError] ->
      {:error, "is not a program that this version reads: #{Exception.message(error)}"}
  end

  defp parse(<<@magic, version, _::binary>>) do
    {:error,
     "has format version #{version}, and this version of Mlx reads #{@version}; update Mlx"}
  end

  defp parse(_other), do: {:error, "is not a program written by Mlx.Program.save!/2"}
end
