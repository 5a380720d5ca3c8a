# The example of the README.
Nx.default_backend(Mlx.Backend)

defmodule Quickstart do
  use Mlx.Defn

  # Fits y = a * x + b by gradient descent.
  defn step({a, b}, x, y) do
    {loss, {da, db}} =
      value_and_grad({a, b}, fn {a, b} -> Nx.mean((a * x + b - y) ** 2) end)

    {{a - 0.1 * da, b - 0.1 * db}, loss}
  end
end

x = Nx.linspace(-1, 1, n: 5)
y = Nx.add(Nx.multiply(x, 3), 2)
IO.inspect(Nx.to_list(y))

{line, loss} =
  Enum.reduce(1..200, {{0.0, 0.0}, nil}, fn _, {line, _} -> Quickstart.step(line, x, y) end)

{a, b} = line
IO.puts("y = #{Float.round(Nx.to_number(a), 3)} x + #{Float.round(Nx.to_number(b), 3)}")
IO.puts("loss below 1.0e-6: #{Nx.to_number(loss) < 1.0e-6}")
