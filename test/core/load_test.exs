defmodule Mlx.LoadTest do
  # Oracle: another VM, in which the library cannot be loaded.
  use ExUnit.Case, async: true

  @tag :tmp_dir
  # Elsewhere the search path has another name.
  @tag :linux
  test "a library that cannot be loaded leaves the VM alive and says what to do", %{tmp_dir: dir} do
    File.write!(Path.join(dir, "libmlx.so"), "this is no library")

    script = """
    {:ok, _} = Application.ensure_all_started(:mlx)
    try do
      Mlx.Array.from_binary(<<1>>, {:u, 8}, {1})
    rescue
      error in Mlx.Error -> IO.puts([to_string(error.kind), ": ", Exception.message(error)])
    end
    IO.puts("alive")
    """

    paths = for path <- :code.get_path(), do: ["-pa", to_string(path)]
    env = [{"LD_LIBRARY_PATH", dir}]
    {output, 0} = System.cmd("elixir", List.flatten(paths) ++ ["-e", script], env: env)
    assert output =~ "not_loaded: the native library of Mlx could not be loaded"
    assert output =~ "libmlx.so"
    assert output =~ "mix compile.mlx_native --force"
    assert output =~ "alive"
  end
end
