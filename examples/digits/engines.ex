defmodule Digits.Engines do
  @moduledoc """
  The two ways to compute that `Digits.Train` is given.
  """

  @doc "Saved programs, run by `Mlx.Program`: needs no Nx."
  @spec programs() :: map
  def programs do
    step = Mlx.Program.load!(Path.join(__DIR__, "step.mlxp"))
    predict = Mlx.Program.load!(Path.join(__DIR__, "predict.mlxp"))

    %{
      tensor: &Mlx.Array.from_binary/3,
      read: &Mlx.Array.to_binary/1,
      step: fn state, images, labels ->
        {state, [loss]} = step |> Mlx.Program.run(state ++ [images, labels]) |> Enum.split(12)
        {state, loss}
      end,
      predict: fn state, images ->
        [answers] = Mlx.Program.run(predict, Enum.take(state, 6) ++ [images])
        answers
      end
    }
  end

  if Code.ensure_loaded?(Nx) do
    @doc "Live `Nx.Defn`, compiled by `Mlx.Compiler`."
    @spec nx() :: map
    def nx do
      %{
        tensor: fn binary, type, shape ->
          binary |> Nx.from_binary(type, backend: Mlx.Backend) |> Nx.reshape(shape)
        end,
        read: &Nx.to_binary/1,
        step: fn state, images, labels ->
          {weights, velocities} = Enum.split(state, 6)

          {weights, velocities, loss} =
            Digits.Model.step(tuple(weights), tuple(velocities), images, labels)

          {Tuple.to_list(weights) ++ Tuple.to_list(velocities), loss}
        end,
        predict: fn state, images ->
          Digits.Model.predict(state |> Enum.take(6) |> tuple(), images)
        end
      }
    end

    @doc "The step and the prediction as programs, for batches and a held-out set of these sizes."
    @spec export({pos_integer, pos_integer}) :: [{Path.t(), Mlx.Program.t()}]
    def export({batch, held_out}) do
      weights =
        for {shape, _} <- Digits.Data.weights(), do: Nx.template(shape, :f32)

      weights = tuple(weights)
      images = Nx.template({batch, 64}, :f32)
      labels = Nx.template({batch}, :u8)

      step = Mlx.Compiler.to_program(&Digits.Model.step/4, [weights, weights, images, labels], [])
      all = Nx.template({held_out, 64}, :f32)
      predict = Mlx.Compiler.to_program(&Digits.Model.predict/2, [weights, all], [])
      [{Path.join(__DIR__, "step.mlxp"), step}, {Path.join(__DIR__, "predict.mlxp"), predict}]
    end

    defp tuple(list), do: List.to_tuple(list)
  end
end
