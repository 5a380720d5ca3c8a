# Trains the classifier: with live Nx.Defn where Nx is there, else with saved programs.
nx? = Code.ensure_loaded?(Nx)
files = ["data.ex"] ++ if(nx?, do: ["model.ex"], else: []) ++ ["engines.ex", "train.ex"]
Enum.each(files, &Code.require_file(&1, __DIR__))

info = Mlx.info()

IO.puts(
  "MLX #{info.mlx} on #{inspect(info.default)}, BLAS: #{info.blas || "MLX's own, which is slow"}"
)

IO.puts(
  if nx?,
    do: "Nx #{Application.spec(:nx, :vsn)}: Nx.Defn functions, compiled by Mlx.Compiler\n",
    else: "Without Nx: the training step is a program read from a file\n"
)

{accuracy, _losses} =
  Digits.Train.run(if nx?, do: Digits.Engines.nx(), else: Digits.Engines.programs())

Digits.Train.check!(accuracy)
