defmodule Mlx.Lower.Family do
  @moduledoc false
  # The words in which a family of lowerings is written. Each defines the function
  # `lower_NAME(out, args)` and records the name with its status, which `Mlx.Lower` collects:
  #
  #     unary exp: :exp                      the operand cast to out's type, one MLX operation
  #     host exp: :exp                       as unary; a host kernel on CPUs
  #     arith add: :add                      both operands cast to out's type
  #     compare less: :less                  both cast to their merged type; bool becomes u8
  #     lower :name, out, [args] do ...      MLX has the operation
  #     compose :name, out, [args] do ...    several MLX operations make it up
  #     hosted :name, out, [args] do ...     a host kernel on CPUs, for floats
  #
  # For example `arith add: :add` becomes
  #
  #     def lower_add(%{type: t}, [%{type: t}, %{type: t}] = args), do: {:add, args}
  #
  #     def lower_add(%{type: t}, [l, r]) do
  #       wide = operand_type(t, l.type, r.type)
  #       cast({:add, [cast(l, wide), cast(r, wide)]}, wide, t)
  #     end

  defmacro __using__(_opts) do
    quote do
      import Mlx.Lower.Family
      import Mlx.Lower.Tree
      alias Nx.Tensor, as: T
      Module.register_attribute(__MODULE__, :lowered, accumulate: true)
      @before_compile Mlx.Lower.Family
    end
  end

  defmacro __before_compile__(_env) do
    quote do
      @doc "The names lowered here, with their status."
      def __lowered__,
        do: unquote(Macro.escape(Module.get_attribute(__CALLER__.module, :lowered)))
    end
  end

  defmacro unary(table), do: unary(table, :native)
  defmacro host(table), do: unary(table, :host)

  defp unary(table, status) do
    for {name, op} <- table do
      quote do
        @lowered {unquote(name), unquote(status)}
        def unquote(function(name))(%{type: type}, [%{type: type}] = args),
          do: {unquote(op), args}

        def unquote(function(name))(%{type: type}, [t]), do: {unquote(op), [cast(t, type)]}
      end
    end
  end

  defmacro arith(table) do
    for {name, op} <- table do
      quote do
        @lowered {unquote(name), :native}
        def unquote(function(name))(%{type: type}, [%{type: type}, %{type: type}] = args),
          do: {unquote(op), args}

        def unquote(function(name))(%{type: type}, [l, r]) do
          wide = operand_type(type, l.type, r.type)
          cast({unquote(op), [cast(l, wide), cast(r, wide)]}, wide, type)
        end
      end
    end
  end

  defmacro compare(table) do
    for {name, op} <- table do
      quote do
        @lowered {unquote(name), :native}
        def unquote(function(name))(_out, [%{type: type}, %{type: type}] = args),
          do: from_bool({unquote(op), args})

        def unquote(function(name))(_out, [%{type: {:u, 64}} = l, %{type: {:s, _}} = r]),
          do: Mlx.Lower.Compare.unsigned(unquote(op), l, r)

        def unquote(function(name))(_out, [%{type: {:s, _}} = l, %{type: {:u, 64}} = r]),
          do: Mlx.Lower.Compare.unsigned(unquote(mirrored(op)), r, l)

        def unquote(function(name))(_out, [%{type: {:c, 64}} = l, %{type: {:f, 64}} = r]),
          do: Mlx.Lower.Compare.complex(unquote(op), l, r)

        def unquote(function(name))(_out, [%{type: {:f, 64}} = l, %{type: {:c, 64}} = r]),
          do: Mlx.Lower.Compare.complex(unquote(op), r, l)

        def unquote(function(name))(_out, [%{type: left} = l, %{type: right} = r]) do
          type = left |> Nx.Type.merge(right) |> operand_type(left, right)
          from_bool({unquote(op), [cast(l, type), cast(r, type)]})
        end
      end
    end
  end

  @mirrored %{
    greater: :less,
    less: :greater,
    greater_equal: :less_equal,
    less_equal: :greater_equal
  }

  defp mirrored(op), do: Map.get(@mirrored, op, op)

  defmacro lower(name, out, args, do: body), do: define(name, :native, out, args, body)
  defmacro compose(name, out, args, do: body), do: define(name, :composed, out, args, body)

  defmacro hosted(name, out, args, do: body), do: define(name, :host, out, args, body)

  defp define(name, status, out, args, body) do
    quote do
      @lowered {unquote(name), unquote(status)}
      def unquote(function(name))(unquote(out), unquote(args)), do: unquote(body)
    end
  end

  @doc "The function that lowers `name`."
  def function(name), do: :"lower_#{name}"
end
