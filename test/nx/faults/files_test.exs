defmodule Mlx.Faults.FilesTest do
  # Files that cannot be written or are damaged. Oracle: what was written.
  use ExUnit.Case, async: true

  import Mlx.Faults

  alias Mlx.Program

  @moduletag :tmp_dir

  defp program(size \\ 3),
    do: Program.new([{{:f, 32}, {size}}], [{:sin, [0]}, {:add, [0, 1]}], [2])

  test "a program that cannot be written leaves the one that was there", %{tmp_dir: dir} do
    path = Path.join(dir, "program.mlxp")
    Program.save!(program(), path)
    whole = File.read!(path)

    # A process that may not make files as large stands for a full disk.
    script = """
    program = Mlx.Program.new([{{:f, 32}, {3}}], List.duplicate({:sin, [0]}, 500), [1])
    try do
      Mlx.Program.save!(program, #{inspect(path)})
    rescue
      error in File.Error -> IO.puts(Exception.message(error))
    end
    """

    paths = for path <- :code.get_path(), arg <- ["-pa", to_string(path)], do: arg
    # In units of 512 bytes; a signal would tell of it, and end the VM.
    sh = ~s(trap '' XFSZ; ulimit -f 1; exec elixir "$@")

    {output, 0} =
      System.cmd("sh", ["-c", sh, "sh"] ++ paths ++ ["-e", script], stderr_to_stdout: true)

    inject(:file_too_large)
    assert output =~ ~s(could not write the program to "#{path}": file too large)
    assert File.read!(path) == whole
    assert File.ls!(dir) == ["program.mlxp"]
  end

  test "a program for which there is no place is an error that names it", %{tmp_dir: dir} do
    for {path, reason} <- [{Path.join(dir, "none/program.mlxp"), :enoent}, {dir, :eisdir}] do
      inject(:file_not_writable)
      error = assert_raise File.Error, fn -> Program.save!(program(), path) end
      assert {error.path, error.reason} == {path, reason}
    end

    assert File.ls!(dir) == []
  end

  test "a damaged program is refused, wherever it is damaged", %{tmp_dir: dir} do
    path = Path.join(dir, "program.mlxp")
    Program.save!(program(), path)
    whole = File.read!(path)
    size = byte_size(whole)

    for _ <- 1..rounds(300) do
      at = :rand.uniform(size) - 1
      <<before::binary-size(at), byte, rest::binary>> = whole

      damaged =
        case :rand.uniform(3) do
          1 -> before
          2 -> <<before::binary, Bitwise.bxor(byte, :rand.uniform(255)), rest::binary>>
          3 -> <<before::binary, byte, byte, rest::binary>>
        end

      File.write!(path, damaged)
      inject(:program_damaged)
      assert_raise ArgumentError, fn -> Program.load!(path) end
    end

    File.write!(path, whole)
    assert Program.load!(path).instructions == program().instructions
  end

  # A checksum that fits does not make a program.
  test "what is no program but has a checksum is refused", %{tmp_dir: dir} do
    path = Path.join(dir, "program.mlxp")
    {inputs, instructions, outputs} = {[{{:f, 32}, {3}}], [{:sin, [0]}, {:add, [0, 1]}], [2]}
    Program.save!(program(), path)
    <<head::binary-13, _md5::binary-16, data::binary>> = File.read!(path)
    assert :erlang.binary_to_term(data) == {inputs, instructions, outputs}

    for _ <- 1..rounds(300) do
      at = :rand.uniform(byte_size(data)) - 1
      <<before::binary-size(at), byte, rest::binary>> = data
      damaged = <<before::binary, Bitwise.bxor(byte, :rand.uniform(255)), rest::binary>>
      File.write!(path, [head, :erlang.md5(damaged), damaged])
      inject(:program_forged)

      try do
        %Program{} = Program.load!(path)
      rescue
        error in [ArgumentError, Mlx.Error] -> assert Exception.message(error) != ""
      end
    end
  end

  test "a list of what was built that was cut short is made again" do
    manifest = :erlang.term_to_binary({[], %{}, []})
    parse = &Mix.Tasks.Compile.MlxNative.parse/1
    assert parse.(manifest) == {[], %{}, []}

    for size <- 0..(byte_size(manifest) - 1),
        do: assert(parse.(binary_part(manifest, 0, size)) == nil)
  end
end
