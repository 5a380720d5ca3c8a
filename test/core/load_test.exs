defmodule Mlx.LoadTest do
  # Oracle: another VM, in which the library cannot be loaded.
  use ExUnit.Case, async: true

  @moduletag :tmp_dir

  # Elsewhere the search path has another name.
  @tag :linux
  test "A1-07: a library that cannot be loaded leaves the VM alive and says what to do", %{
    tmp_dir: dir
  } do
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

  test "A1-16: the library is loaded from a folder with spaces in its name", %{tmp_dir: dir} do
    app = :mlx |> Application.app_dir() |> Path.expand()
    spaced = Path.join(dir, "with a space/lib/mlx")
    File.mkdir_p!(spaced)
    File.ln_s!(Path.join(app, "ebin"), Path.join(spaced, "ebin"))
    File.cp_r!(Path.join(app, "priv"), Path.join(spaced, "priv"))

    script = """
    IO.puts(:code.priv_dir(:mlx))
    {:ok, _} = Application.ensure_all_started(:mlx)
    IO.inspect(Mlx.Array.to_binary(Mlx.Array.from_binary(<<1, 2>>, {:u, 8}, {2})))
    """

    others = for path <- :code.get_path(), Path.expand(path) != Path.join(app, "ebin"), do: path

    paths =
      for path <- [Path.join(spaced, "ebin") | others], arg <- ["-pa", to_string(path)], do: arg

    assert {output, 0} = System.cmd("elixir", paths ++ ["-e", script])
    assert output == "#{spaced}/priv\n<<1, 2>>\n"
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
