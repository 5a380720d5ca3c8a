defmodule Mlx.Source do
  @moduledoc false
  # Which function of the user's a program comes from, as errors, the log and `debug: true` name it.
  #
  # An entry is made for every compilation and costs next to nothing. Its file and line are looked
  # up when somebody is about to read them, in what the compiler left in the module's file; whatever
  # is not there is left out. Nothing here raises: it is called while something else is reported.

  # As in a stacktrace. The location is given where only the function itself knows it.
  @type t :: {module, name :: atom, arity, location :: keyword}

  # Functions that Nx puts around the user's, which they capture.
  @wrappers [Nx.Defn, Nx.Defn.Compiler]
  @deepest 4

  @doc "The entry of a function, or of the one that it wraps."
  @spec entry(term) :: t | nil
  def entry(fun) when is_function(fun) do
    info = fun |> wrapped(@deepest) |> :erlang.fun_info()
    {module, name, arity} = {info[:module], info[:name], info[:arity]}
    {module, defn(module, name, arity), arity, location(module, info[:env])}
  end

  def entry(_key), do: nil

  defp wrapped(fun, depth) do
    with true <- depth > 0,
         {:module, module} when module in @wrappers <- :erlang.fun_info(fun, :module),
         {:env, env} when is_list(env) <- :erlang.fun_info(fun, :env),
         inner when is_function(inner) <-
           Enum.find(env, &foreign?/1) || Enum.find(env, &is_function/1) do
      wrapped(inner, depth - 1)
    else
      _ -> fun
    end
  end

  defp foreign?(fun) when is_function(fun),
    do: not match?({:module, module} when module in @wrappers, :erlang.fun_info(fun, :module))

  defp foreign?(_other), do: false

  # What ordinary code calls is not the body of `defn predict` but a function that compiles it:
  # for `Nx.Defn` a capture of the body, for `Mlx.Defn` an anonymous function in `predict`.
  defp defn(module, name, arity) do
    with {parent, ^arity} <- parent(name),
         true <- function_exported?(module, String.to_atom("__defn:#{parent}__"), arity) do
      String.to_atom(parent)
    else
      _ -> plain(name)
    end
  end

  defp plain(name) do
    case Atom.to_string(name) do
      "__defn:" <> rest -> rest |> String.replace_suffix("__", "") |> String.to_atom()
      _ -> name
    end
  end

  # A function that was typed into a shell or a notebook is a clause with a line.
  defp location(:erl_eval, [evaluated | _]) when is_tuple(evaluated) do
    for [{:clause, anno, _, _, _} | _] <- Tuple.to_list(evaluated),
        line = :erl_anno.line(anno),
        line > 0,
        reduce: [],
        do: (_ -> [line: line])
  rescue
    _ -> []
  end

  defp location(_module, _env), do: []

  @doc "An entry as bytes, for the native side to hand back."
  @spec label(t | nil) :: binary | nil
  def label(nil), do: nil
  def label(entry), do: :erlang.term_to_binary(entry)

  @doc "The entry of a label."
  @spec from_label(binary | nil) :: t | nil
  def from_label(nil), do: nil
  def from_label(label), do: :erlang.binary_to_term(label)

  @doc """
  An entry to read: `&MyApp.Model.predict/2 (lib/my_app/model.ex:12)`, or for a function without a
  name, where it is: `anonymous fn/1 in MyApp.Model.train/2 (lib/my_app/model.ex:30)`.
  """
  @spec format(t) :: String.t()
  def format({module, name, arity, location}) do
    case place(location, module, name, arity) do
      "" -> named(module, name, arity)
      place -> "#{named(module, name, arity)} (#{place})"
    end
  catch
    _kind, _reason -> inspect({module, name, arity})
  end

  @doc "The function that an anonymous one is in, and any other itself."
  @spec outer(t) :: t
  def outer({module, name, arity, location}) do
    case parent(name) do
      {parent, arity} -> {module, plain(String.to_atom(parent)), arity, location}
      nil -> {module, plain(name), arity, location}
    end
  end

  defp named(module, name, arity) do
    cond do
      evaluated?(module) -> "anonymous fn/#{arity}"
      parent(name) -> Exception.format_mfa(module, name, arity)
      true -> "&" <> Exception.format_mfa(module, name, arity)
    end
  end

  # What is evaluated and what a script says outside of a module has no module to speak of.
  defp evaluated?(module),
    do: module == :erl_eval or match?("elixir_compiler_" <> _, Atom.to_string(module))

  defp place([], module, name, arity) do
    case {file(module), line(module, name, arity)} do
      {nil, _line} -> ""
      {file, nil} -> file
      {file, line} -> "#{file}:#{line}"
    end
  end

  defp place(location, _module, _name, _arity) do
    case {location[:file], location[:line]} do
      {nil, line} -> "line #{line}"
      {file, line} -> "#{Path.relative_to_cwd(to_string(file))}:#{line}"
    end
  end

  defp file(module) do
    cond do
      module == :erl_eval -> nil
      evaluated?(module) -> module.__RELATIVE__()
      true -> module.module_info(:compile)[:source] |> to_string() |> Path.relative_to_cwd()
    end
  rescue
    _ -> nil
  end

  defp line(module, name, arity) do
    with {_key, _kind, meta, _clauses} <- definition(module, name, arity), do: meta[:line]
  end

  @doc "The patterns of the function's arguments, as they are written, or nil."
  @spec arguments(t | nil) :: [Macro.t()] | nil
  def arguments({module, name, arity, _location}) do
    with nil <- parent(name),
         {_key, _kind, _meta, [{_, args, _, _} | _]} <- definition(module, name, arity) do
      args
    else
      _ -> nil
    end
  end

  def arguments(nil), do: nil

  # A `defn` is two functions; the one with its body has its line and the names of its arguments.
  defp definition(module, name, arity) do
    {name, arity} = parent(name) || {Atom.to_string(name), arity}
    definitions = definitions(module)

    Enum.find(definitions, &defines?(&1, "__defn:#{name}__", arity)) ||
      Enum.find(definitions, &defines?(&1, name, arity))
  end

  defp defines?({{name, arity}, _kind, _meta, _clauses}, wanted, arity),
    do: Atom.to_string(name) == wanted

  defp defines?(_definition, _name, _arity), do: false

  # Not there for modules that were never written to a file, or stripped in a release.
  defp definitions(module) do
    with [_ | _] = path <- :code.which(module),
         {:ok, {^module, [debug_info: {:debug_info_v1, backend, data}]}} <-
           :beam_lib.chunks(path, [:debug_info]),
         {:ok, %{definitions: definitions}} <- backend.debug_info(:elixir_v1, module, data, []) do
      definitions
    else
      _ -> []
    end
  rescue
    _ -> []
  end

  # The function that an anonymous one is in: "-train/2-fun-0-".
  defp parent(name) do
    case Regex.run(~r{\A-(?:fun\.)?(.+?)/(\d+)-}, Atom.to_string(name)) do
      [_, parent, arity] -> {parent, String.to_integer(arity)}
      nil -> nil
    end
  end
end
