defmodule Mlx.Defn do
  @moduledoc """
  Numerical functions that a module compiles with `Mlx.Compiler`, or a compiler of its choice.

      defmodule MyModel do
        use Mlx.Defn

        @defn_compiler {Mlx.Compiler, device: :cpu}

        defn softmax(t), do: Nx.exp(t) / Nx.sum(Nx.exp(t))
      end

      MyModel.softmax(Nx.tensor([1.0, 2.0, 3.0]))

  `use Mlx.Defn` imports `Nx.Defn`. Calling a public `defn` of the module from ordinary code then
  compiles and runs it with the compiler in `@defn_compiler`, whatever the default options of
  `Nx.Defn` say. Called from another `defn`, or through `Nx.Defn.jit/2` and the like, it is inlined
  into the caller, and the caller's compiler counts.

  ## The attribute

  `@defn_compiler` is either a module that implements `Nx.Defn.Compiler` or a tuple of one and its
  options. It defaults to `Mlx.Compiler`.

  The attribute governs the module, not the functions that follow it: its last value counts for
  all of them. Anything else than the above is a `CompileError`.
  """

  @doc """
  Imports `Nx.Defn` and has `@defn_compiler` govern the public `defn`s of the module.
  """
  defmacro __using__(_opts) do
    quote do
      import Nx.Defn
      Module.register_attribute(__MODULE__, :defn_compiler, [])
      Module.register_attribute(__MODULE__, :mlx_defns, accumulate: true)
      @on_definition Mlx.Defn
    end
  end

  # Nx.Defn replaces the bodies of `defn`s in a before_compile hook that it registers with the
  # module's first one. Ours wraps what that hook defines and has to come after it, so it is
  # registered when the first definition arrives rather than by `use`.
  @doc false
  def __on_definition__(env, :def, name, args, _guards, _body) do
    if Nx.Defn.Compiler.defn?() do
      if Module.get_attribute(env.module, :mlx_defns) == [],
        do: Module.put_attribute(env.module, :before_compile, {__MODULE__, :__wrap__})

      Module.put_attribute(env.module, :mlx_defns, {name, length(args)})
    end
  end

  def __on_definition__(_env, _kind, _name, _args, _guards, _body), do: :ok

  @doc false
  defmacro __wrap__(env) do
    opts = env.module |> Module.get_attribute(:defn_compiler) |> options(env)
    defns = env.module |> Module.get_attribute(:mlx_defns) |> Enum.uniq()
    Module.delete_attribute(env.module, :mlx_defns)

    for {name, arity} <- defns, do: wrap(name, arity, opts)
  end

  # Within a compilation the definition of Nx inlines the body. Otherwise it is jitted here; the
  # capture has no environment, hence it is the same key at every call.
  defp wrap(name, arity, opts) do
    args = Macro.generate_arguments(arity, __MODULE__)

    quote generated: true do
      defoverridable [{unquote(name), unquote(arity)}]

      def unquote(name)(unquote_splicing(args)) do
        if Nx.Defn.Compiler.current() do
          super(unquote_splicing(args))
        else
          Nx.Defn.jit_apply(
            fn unquote_splicing(args) -> super(unquote_splicing(args)) end,
            unquote(args),
            unquote(opts)
          )
        end
      end
    end
  end

  defp options(nil, env), do: options(Mlx.Compiler, env)

  defp options(compiler, env) when is_atom(compiler) and not is_boolean(compiler),
    do: options({compiler, []}, env)

  defp options({compiler, opts} = value, env) when is_atom(compiler) and is_list(opts) do
    cond do
      not Keyword.keyword?(opts) -> invalid!(value, env)
      not compiler?(compiler) -> not_a_compiler!(compiler, env)
      true -> escape(Keyword.put(opts, :compiler, compiler), value, env)
    end
  end

  defp options(value, env), do: invalid!(value, env)

  defp compiler?(module) do
    match?({:module, _}, Code.ensure_compiled(module)) and function_exported?(module, :__jit__, 5)
  end

  defp escape(opts, value, env) do
    Macro.escape(opts)
  rescue
    ArgumentError -> invalid!(value, env)
  end

  defp invalid!(value, env) do
    compile_error!(
      env,
      "@defn_compiler must be a compiler such as Mlx.Compiler, or a tuple of a compiler and its " <>
        "options such as {Mlx.Compiler, device: :cpu}, got: #{inspect(value)}"
    )
  end

  defp not_a_compiler!(module, env) do
    compile_error!(
      env,
      "@defn_compiler names #{inspect(module)}, which is not available or does not implement " <>
        "Nx.Defn.Compiler. Use Mlx.Compiler, Nx.Defn.Evaluator or a compiler among your dependencies"
    )
  end

  defp compile_error!(env, description) do
    raise CompileError, file: env.file, line: env.line, description: description
  end
end
