if Code.ensure_loaded?(Nx) do
  defmodule Mlx.Fuzz.Calls do
    @moduledoc false
    # The functions that are called, and how their results are compared: see `Mlx.Fuzz.Compare`. Their
    # arguments are made by `Mlx.Fuzz.Args`.

    alias Mlx.Fuzz.{Args, Control}

    # Correctly rounded, or no arithmetic at all.
    @exact ~w(abs bitwise_not ceil conjugate count_leading_zeros floor imag is_infinity is_nan
              logical_not negate population_count real round sign sqrt
              add subtract multiply min max divide
              bitwise_and bitwise_or bitwise_xor left_shift right_shift quotient remainder
              equal not_equal greater less greater_equal less_equal
              logical_and logical_or logical_xor
              all any argmax argmin argsort sort top_k reduce_max reduce_min median mode
              as_type bitcast bf16 c64 c128 f16 f32 f64 f8 s16 s2 s32 s4 s64 s8 u16 u2 u32 u4 u64 u8
              broadcast reshape squeeze transpose reverse flatten new_axis pad pad_outer reflect
              concatenate stack tile split rename vectorize devectorize revectorize reshape_vectors
              broadcast_vectors select clip complex diff
              slice slice_along_axis put_slice take take_along_axis gather indexed_put
              take_diagonal put_diagonal make_diagonal tri tril triu eye iota fill
              cumulative_max cumulative_min window_max window_min window_scatter_max window_scatter_min
              to_tensor tensor backend_copy backend_transfer)a

    # Each number by itself, to some units in the last place.
    @rounded ~w(acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erf_inv erfc exp expm1 log log1p log2
                log10 phase pow rsqrt sigmoid sin sinh tan tanh)a

    # Sums and products in whatever order.
    @sums ~w(sum product mean variance standard_deviation weighted_mean covariance logsumexp
             cumulative_sum cumulative_product window_sum window_product window_mean
             dot outer conv reduce window_reduce indexed_add
             fft ifft fft2 ifft2 rfft irfft linspace)a

    # Not tensors, or not of values.
    @terms ~w(axes axis_index axis_size bit_size byte_size compatible? flat_size names rank shape size type
              to_binary to_flat_list to_list to_number to_template template all_close)a

    @linalg ~w(adjoint cholesky determinant eigh invert least_squares lu matrix_power matrix_rank norm
               pinv qr solve svd triangular_solve)a

    @control ~w(repeat steps pair choose branches slope block runtime_call)a
    @outside ~w(batches serialized bits pointer freed text heatmap)a

    @table for(
             {names, class} <- [
               {@exact, :exact},
               {@rounded, :rounded},
               {@sums, :sums},
               {@terms, :term}
             ],
             name <- names,
             do: {Nx, name, class}
           ) ++
             for(name <- @linalg, do: {Nx.LinAlg, name, :linalg}) ++
             for(name <- @control, do: {Control, name, :sums}) ++
             for(name <- @outside, do: {Control, name, :exact})

    # What takes long by nature comes less often.
    @slow ~w(svd eigh pinv least_squares matrix_rank slope mode)a
    @weighted @table
              |> Enum.flat_map(fn {_, name, _} = row ->
                times =
                  cond do
                    name in @slow -> 1
                    name in [:norm, :qr, :lu, :conv] -> 4
                    true -> 8
                  end

                List.duplicate(row, times)
              end)
              |> List.to_tuple()

    @classes Map.new(@table, fn {module, name, class} -> {{module, name}, class} end)

    # Not inside of a compiled function: they answer what is no tensor, or look at values.
    @eager_only @terms ++ @outside ++ [:tensor, :backend_copy, :backend_transfer]

    @doc "All rows: `{module, name, class}`."
    def table, do: @table

    @doc "One of the functions, or of those named in `only`."
    def pick([_ | _] = only) do
      name = Enum.random(only)
      {module, ^name, _} = List.keyfind(@table, name, 1)
      {module, name}
    end

    def pick(nil) do
      {module, name, _} = elem(@weighted, :rand.uniform(tuple_size(@weighted)) - 1)
      {module, name}
    end

    @doc "How results are compared."
    def class(module, name), do: Map.fetch!(@classes, {module, name})

    @doc "Whether results are tensors that a later call may use."
    def tensors?(name), do: name not in @terms and name not in @outside

    @doc "Whether the call may be in a compiled function."
    def compiled?(name), do: name not in @eager_only

    defdelegate args(name), to: Args
  end
end
