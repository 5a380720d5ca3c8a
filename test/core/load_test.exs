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

    env = [{"LD_LIBRARY_PATH", dir}]
    {output, 0} = System.cmd("elixir", paths() ++ ["-e", script], env: env)
    assert output =~ "not_loaded: the native library of Mlx could not be loaded"
    assert output =~ "libmlx.so"
    assert output =~ "mix compile --force"
    assert output =~ "alive"
  end

  test "without the application started, an error says to start it" do
    script = """
    try do
      Mlx.Array.from_binary(<<1>>, {:u, 8}, {1})
    rescue
      error in Mlx.Error -> IO.puts(Exception.message(error))
    end
    """

    assert {output, 0} = System.cmd("elixir", paths() ++ ["-e", script])
    assert output =~ "Application.ensure_all_started(:mlx)"
  end

  defp paths, do: for(path <- :code.get_path(), arg <- ["-pa", to_string(path)], do: arg)
end
