defmodule Mlx.GuidesTest do
  # Oracle: the results printed in the guides.
  use ExUnit.Case, async: true

  setup do
    Nx.default_backend(Mlx.Backend)
    :ok
  end

  for guide <- ["getting_started", "finding_mistakes"],
      do: doctest_file(Path.expand("../../guides/#{guide}.md", __DIR__))
end
