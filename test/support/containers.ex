if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Containers do
    @moduledoc false
    # Containers for tests. They are compiled with the library since protocols are consolidated
    # by the time that tests are loaded.

    defmodule Pair do
      @moduledoc false
      @derive {Nx.Container, containers: [:left, :right], keep: [:label]}
      defstruct [:left, :right, :label, :scratch]
    end

    defmodule Lazy do
      @moduledoc false
      # Loads a tensor only when it is asked for, and tells the test.
      defstruct [:test, :values]

      defimpl Nx.LazyContainer do
        def traverse(%{test: test, values: values}, acc, fun) do
          {pairs, acc} =
            Enum.map_reduce(Enum.sort(values), acc, fn {key, tensor}, acc ->
              load = fn ->
                send(test, {:loaded, key})
                tensor
              end

              {value, acc} = fun.(Nx.to_template(tensor), load, acc)
              {{key, value}, acc}
            end)

          {Map.new(pairs), acc}
        end
      end
    end
  end
end
