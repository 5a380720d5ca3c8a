defmodule Mlx.GuidesTest do
  # Oracle: the results printed in the guides.
  use ExUnit.Case, async: true

  setup do
    Nx.default_backend(Mlx.Backend)
    :ok
  end

  doctest_file(Path.expand("../../guides/getting_started.md", __DIR__))
end
