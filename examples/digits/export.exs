# Writes the programs that run the example where Nx is not there.
Enum.each(["data.ex", "model.ex", "engines.ex", "train.ex"], &Code.require_file(&1, __DIR__))

for {path, program} <- Digits.Engines.export(Digits.Train.sizes()) do
  Mlx.Program.save!(program, path)
  IO.puts("#{path}: #{length(program.instructions)} instructions, #{File.stat!(path).size} bytes")
end
