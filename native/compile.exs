defmodule Mix.Tasks.Compile.MlxNative do
  @moduledoc false
  # Builds the NIF and gathers all that it needs at run time in priv/, so that a release can be
  # moved to another machine. It runs ahead of the Elixir compiler, and it stays out of mix.exs
  # because a project that depends on Mlx evaluates that file at every command.

  use Mix.Task.Compiler

  @recursive true
  @root Path.expand("..", __DIR__)

  @doc """
  The folders to compile. Where Mlx is a dependency, `nx?` is only a guess when mix.exs is read:
  the project around it decides, which `run/1` sees.
  """
  def elixirc_paths(:test, true), do: ["lib/core", "lib/nx", "test/support"]
  def elixirc_paths(_env, true), do: ["lib/core", "lib/nx"]
  def elixirc_paths(_env, false), do: ["lib/core"]

  @impl true
  def run(args) do
    choose_sources()
    inputs = inputs()

    if "--force" not in args and up_to_date?(inputs) do
      {:noop, []}
    else
      build(inputs)
    end
  end

  @impl true
  def manifests, do: [manifest()]

  @impl true
  def clean do
    File.rm_rf!(priv())
    File.rm(manifest())
    :ok
  end

  defp build(inputs) do
    with :ok <- fetch_mlx(),
         {:ok, target} <- cargo_build(),
         {:ok, libraries} <- read_libraries(target) do
      wanted = wanted(target, libraries)
      changed? = fill_priv(wanted)
      File.mkdir_p!(Path.dirname(manifest()))
      File.write!(manifest(), :erlang.term_to_binary({inputs, wanted, stamps(wanted)}))
      {if(changed?, do: :ok, else: :noop), []}
    else
      {:error, message} ->
        Mix.shell().error("mlx: " <> message)
        {:error, [diagnostic(message)]}
    end
  end

  # cargo would find out by itself, but says so at every Mix command, and takes its time.
  defp up_to_date?(inputs) do
    with {:ok, binary} <- File.read(manifest()),
         {^inputs, wanted, stamps} <- parse(binary) do
      stamps == stamps(wanted) and Enum.sort(Map.keys(wanted)) == Enum.sort(present())
    else
      _ -> false
    end
  end

  @doc "What a manifest says, or nil where it was cut short."
  def parse(manifest) do
    :erlang.binary_to_term(manifest)
  rescue
    ArgumentError -> nil
  end

  # All that decides how the NIF comes out.
  defp inputs do
    sources = Path.wildcard(Path.join(@root, "native/**/*.{c,cpp,exs,h,lock,py,rs,toml,txt}"))
    workspace = Enum.map(["Cargo.toml", "Cargo.lock"], &Path.join(@root, &1))
    names = ~w(CARGO_TARGET_DIR CXX MLX_BLAS MLX_CACHE_DIR MLX_DIR MLX_VARIANT RUSTFLAGS)
    {Enum.map(sources ++ workspace, &stamp/1), Enum.map(names, &System.get_env/1)}
  end

  defp stamps(wanted), do: Enum.map(wanted, fn {_name, from} -> stamp(from) end)

  defp stamp(path) do
    case File.stat(path, time: :posix) do
      {:ok, %{size: size, mtime: mtime}} -> {path, size, mtime}
      {:error, _} -> {path, nil, nil}
    end
  end

  defp manifest, do: Path.join(Mix.Project.manifest_path(), "compile.mlx_native")

  # Here the code paths hold exactly the dependencies that were resolved, optional ones included.
  defp choose_sources do
    Mix.Task.run("loadpaths")
    nx? = Code.ensure_loaded?(Nx)
    Mix.ProjectStack.merge_config(elixirc_paths: elixirc_paths(Mix.env(), nx?))

    unless nx? or dependency?() or System.get_env("MLX_WITHOUT_NX") do
      Mix.shell().info(
        "mlx: compiling the core only, because Nx is not there; to have it, install Hex " <>
          "(mix local.hex) and run mix deps.get, or put its source in ~/.mlx/deps/nx"
      )
    end
  end

  # The build script of mlx_ffi would do it too, but cargo shows nothing of that until it fails.
  defp fetch_mlx do
    script = Path.join(@root, "native/mlx_ffi/fetch_mlx.py")

    with {:ok, python} <- find("python3", "install Python 3 with pip, then run this again") do
      case System.cmd(python, [script]) do
        {_, 0} -> :ok
        {_, _} -> {:error, "MLX could not be had; the line above says why"}
      end
    end
  end

  defp cargo_build do
    remedy = "install Rust from your package manager or with rustup, then run this again"

    with {:ok, cargo} <- find("cargo", remedy) do
      target = target_dir()
      locked = if dependency?(), do: ["--locked"], else: []

      env = [
        {"CARGO_TARGET_DIR", target},
        {"PATH", Path.dirname(cargo) <> ":" <> System.get_env("PATH", "")}
      ]

      args = ["build", "--release", "-p", "mlx_nif"] ++ locked

      # cargo reports on stderr, which goes to the terminal by itself.
      case System.cmd(cargo, args, cd: @root, env: env) do
        {_, 0} -> {:ok, target}
        {_, _} -> {:error, "cargo could not build the NIF; its messages are above"}
      end
    end
  end

  # A dependency's own folder may be read-only.
  defp target_dir do
    cond do
      dir = System.get_env("CARGO_TARGET_DIR") -> Path.expand(dir)
      dependency?() -> Path.join(Mix.Project.build_path(), "mlx_native")
      true -> Path.join(@root, "target")
    end
  end

  defp dependency? do
    Path.expand(Mix.Project.deps_path()) != Path.join(@root, "deps")
  end

  # What the build script of mlx_ffi linked against: lines `mlx=PATH` and `blas=PATH or nothing`.
  defp read_libraries(target) do
    path = Path.join(target, "mlx-libraries.txt")

    case File.read(path) do
      {:ok, text} ->
        lines = String.split(text, "\n", trim: true)
        {:ok, Map.new(lines, &List.to_tuple(String.split(&1, "=", parts: 2)))}

      {:error, _} ->
        {:error, "#{path} is missing; run cargo clean --release -p mlx_ffi, then run this again"}
    end
  end

  # Name in priv/ => the file it is a copy of.
  defp wanted(target, libraries) do
    extension = if macos?(), do: "dylib", else: "so"
    nif = Path.join([target, "release", "libmlx_nif." <> extension])
    libmlx = mlx_files(libraries["mlx"])
    Map.new([{"mlx_nif.so", nif}] ++ libmlx ++ blas_files(libraries["blas"]))
  end

  defp fill_priv(wanted) do
    stale = Enum.reject(present(), &Map.has_key?(wanted, &1))
    Enum.each(stale, &File.rm!(Path.join(priv(), &1)))
    copied = Enum.filter(wanted, fn {name, from} -> place(from, Path.join(priv(), name)) end)
    stale != [] or copied != []
  end

  # The layout of the wheel is kept: libmlx finds its own libraries relative to itself. CUDA's
  # are gigabytes and so linked, not copied (mix release copies what a link points to), as are
  # the headers against which MLX compiles CUDA kernels at run time.
  defp mlx_files(libmlx) do
    lib = Path.dirname(libmlx)
    prefix = Path.dirname(lib)
    site = Path.dirname(prefix)
    own = Path.wildcard(Path.join(lib, "*.{so,dylib,metallib}"))
    bundled = Path.wildcard(Path.join(site, "mlx_*.libs/*"))
    nvidia = Path.join(site, "nvidia")

    links =
      if File.dir?(nvidia),
        do: [{"nvidia", nvidia}, {"mlx/include", Path.join(prefix, "include")}],
        else: []

    Enum.map(own, &{Path.join("mlx", Path.relative_to(&1, prefix)), &1}) ++
      Enum.map(bundled, &{Path.relative_to(&1, site), &1}) ++ links
  end

  # Under the names by which the loader asks for them. The Fortran run time goes along, because
  # the machine that a release is moved to may have no compiler.
  defp blas_files(nil), do: []
  defp blas_files(""), do: []

  defp blas_files(blas) do
    fortran =
      for line <- String.split(output("ldd", [blas]), "\n"),
          [_, name, path] <- [Regex.run(~r{^\s*(lib(?:gfortran|quadmath)\S*) => (/\S+)}, line)],
          do: {Path.join("blas", name), path}

    name =
      case Regex.run(~r/\(SONAME\).*\[(.+)\]/, output("readelf", ["-d", blas])) do
        [_, soname] -> soname
        nil -> Path.basename(blas)
      end

    [{Path.join("blas", name), blas} | fortran]
  end

  defp output(program, args) do
    case System.find_executable(program) do
      nil -> ""
      path -> path |> System.cmd(args, stderr_to_stdout: true) |> elem(0)
    end
  end

  # True when it changed something. A copy replaces the old file by a rename, since a running VM
  # may have that mapped, and takes the source's time, by which the next run sees it is current.
  defp place(from, to) do
    cond do
      current?(from, to) ->
        false

      File.dir?(from) ->
        File.mkdir_p!(Path.dirname(to))
        File.rm_rf!(to)
        File.ln_s!(from, to)
        true

      true ->
        %{mtime: mtime, mode: mode} = File.stat!(from, time: :posix)
        File.mkdir_p!(Path.dirname(to))
        part = to <> ".part"
        File.cp!(from, part)
        File.chmod!(part, Bitwise.bor(mode, 0o600))
        File.touch!(part, mtime)
        File.rename!(part, to)
        true
    end
  end

  defp current?(from, to) do
    case File.lstat(to) do
      {:ok, %{type: :symlink}} -> File.read_link(to) == {:ok, from}
      {:ok, %{type: :regular}} -> File.regular?(from) and same_stamp?(from, to)
      _ -> false
    end
  end

  defp same_stamp?(from, to), do: put_elem(stamp(from), 0, to) == stamp(to)

  # Files and links in priv/, by name. Links are not followed.
  defp present(folder \\ "") do
    path = Path.join(priv(), folder)

    for name <- names(path),
        relative = Path.join(folder, name),
        found <- if(directory?(relative), do: present(relative), else: [relative]),
        do: found
  end

  defp names(folder) do
    case File.ls(folder) do
      {:ok, names} -> names
      {:error, _} -> []
    end
  end

  defp directory?(name),
    do: match?({:ok, %{type: :directory}}, File.lstat(Path.join(priv(), name)))

  defp priv, do: Path.join(Mix.Project.app_path(), "priv")

  defp find(name, remedy) do
    home = Path.join([System.user_home() || "/", ".cargo/bin", name])

    cond do
      path = System.find_executable(name) -> {:ok, path}
      File.exists?(home) -> {:ok, home}
      true -> {:error, "#{name} was not found: #{remedy}"}
    end
  end

  defp macos?, do: :os.type() == {:unix, :darwin}

  defp diagnostic(message) do
    %Mix.Task.Compiler.Diagnostic{
      compiler_name: "MlxNative",
      file: Path.join(@root, "native/compile.exs"),
      message: message,
      position: 0,
      severity: :error
    }
  end
end
