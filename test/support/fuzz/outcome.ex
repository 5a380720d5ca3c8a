if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Run.Finding do
    @moduledoc false
    # `step` is the number of the call; `text` what was seen and what is right.
    defstruct [:kind, :step, :module, :name, :text]
  end

  defmodule Mlx.Fuzz.Outcome do
    @moduledoc false
    # What a call gave or raised: whose fault an exception is, and all of it in words.

    alias Mlx.Fuzz.Compare

    alias Mlx.Fuzz.Run.Finding

    # Where Nx.BinaryBackend itself raises, for the values of its operands, Nx specifies nothing.
    def opinion?(stack) do
      Enum.any?(stack, fn {module, name, _, _} ->
        (module in [Nx.BinaryBackend, Nx.BinaryBackend.Matrix, Nx.BinaryBackend.Bits] and
           name != :block) or
          module in [Complex, Nx.Floating]
      end)
    end

    def ours?(stack) do
      Enum.any?(stack, fn {module, _, _, _} ->
        name = Atom.to_string(module)

        String.starts_with?(name, "Elixir.Mlx.") and
          not String.starts_with?(name, "Elixir.Mlx.Fuzz")
      end)
    end

    def documented?(%Mlx.Error{kind: kind}),
      do: kind not in [:panic, :not_loaded, :stopped]

    def documented?(%ArgumentError{}), do: true
    def documented?(%ArithmeticError{message: "Complex.atan2" <> _}), do: true
    def documented?(_error), do: false

    def finding(kind, step, index, text),
      do: %Finding{kind: kind, step: index, module: step.module, name: step.name, text: text}

    @doc "What kind of error it is."
    def error_kind(%module{}), do: module
    def error_kind({kind, _reason}), do: kind

    def show(read) do
      Enum.map_join(read, ", ", fn
        {:tensor, type, shape, names, axes, binary} ->
          values = Compare.numbers(binary, type) |> Enum.take(24)

          more =
            if axes == [] and Enum.all?(names, &is_nil/1),
              do: "",
              else: " #{inspect({names, axes})}"

          "#{Nx.Type.to_string(type)}#{inspect(Tuple.to_list(shape))}#{more} #{inspect(values, limit: 24)}"

        {:term, term} ->
          inspect(term, limit: 12)
      end)
    end

    def show_error(%module{} = error),
      do: "#{inspect(module)} (#{error |> Exception.message() |> String.slice(0, 300)})"

    def show_error(other), do: inspect(other, limit: 8)

    def where(stack) do
      case stack do
        [{module, name, arity, location} | _] ->
          arity = if is_list(arity), do: length(arity), else: arity
          " in #{inspect(module)}.#{name}/#{arity}:#{location[:line]}"

        _ ->
          ""
      end
    end
  end
end
