defmodule Mlx.Ecosystem.ScholarTest do
  @moduledoc """
  Estimators of Scholar, as programs of `Mlx.Compiler`. Oracle: the same functions with
  `Nx.Defn.Evaluator` on `Nx.BinaryBackend`.
  """
  use Mlx.NxCase, async: true

  alias Scholar.{Cluster, Decomposition, Linear, Manifold, Metrics, NaiveBayes, Neighbors}
  alias Scholar.{Interpolation, Preprocessing}

  @moduletag :scholar
  @compile {:no_warn_undefined,
            [
              Cluster.AffinityPropagation,
              Cluster.DBSCAN,
              Cluster.GaussianMixture,
              Cluster.KMeans,
              Decomposition.PCA,
              Decomposition.TruncatedSVD,
              Interpolation.CubicSpline,
              Linear.IsotonicRegression,
              Linear.LinearRegression,
              Linear.LogisticRegression,
              Linear.PolynomialRegression,
              Linear.RidgeRegression,
              Linear.SVM,
              Manifold.MDS,
              Manifold.TSNE,
              Metrics.Classification,
              Metrics.Clustering,
              NaiveBayes.Gaussian,
              Neighbors.KDTree,
              Neighbors.KNNClassifier,
              Neighbors.KNNRegressor,
              Neighbors.NNDescent,
              Preprocessing.StandardScaler
            ]}

  # Three groups of four points, and what belongs to each.
  defp points do
    group = Nx.quotient(Nx.iota({12}), 4)
    noise = Nx.multiply(Nx.sin(Nx.multiply(Nx.iota({12, 3}), 1.7)), 0.6)
    centers = Nx.tensor([[0.0, 4.0, 1.0], [5.0, 0.0, -2.0], [-4.0, -3.0, 3.0]])
    Nx.add(Nx.take(centers, group), noise)
  end

  defp labels, do: Nx.quotient(Nx.iota({12}), 4)

  # A plane over the points, and something beside it.
  defp targets do
    points()
    |> Nx.dot(Nx.tensor([1.5, -2.0, 0.5]))
    |> Nx.add(Nx.multiply(Nx.cos(Nx.iota({12})), 0.3))
  end

  defp key, do: Nx.Random.key(42)

  # What `fun` makes of the points and the key is the same, float for float within the tolerance
  # (absolute below 1), and integer for integer.
  defp assert_alike(fun, opts \\ []) do
    run = fn compiler ->
      Nx.Defn.jit_apply(fun, [points(), labels(), targets(), key()], compiler: compiler)
    end

    actual = run.(Mlx.Compiler)
    expected = Nx.with_default_backend(Nx.BinaryBackend, fn -> run.(Nx.Defn.Evaluator) end)

    for {a, e} <- Enum.zip(flatten(actual), flatten(expected)) do
      assert_equal(a, e, tolerance: opts[:tolerance] || 400)
    end

    actual
  end

  defp flatten(container), do: Nx.Defn.Composite.flatten_list([container])

  # Singular and eigenvectors are known up to their sign: here their largest element is positive.
  defp signed(rows) do
    largest = Nx.argmax(Nx.abs(rows), axis: 1, keep_axis: true)
    Nx.multiply(rows, Nx.sign(Nx.take_along_axis(rows, largest, axis: 1)))
  end

  defp accuracy(predicted, labels) do
    Nx.to_number(Nx.mean(Nx.equal(predicted, labels)))
  end

  describe "clusters" do
    test "k-means" do
      {model, predicted} =
        assert_alike(fn x, _, _, key ->
          model = Cluster.KMeans.fit(x, num_clusters: 3, num_runs: 2, key: key)
          {model, Cluster.KMeans.predict(model, x)}
        end)

      assert Nx.to_number(model.num_iterations) > 0

      assert for(
               k <- [0, 4, 8],
               do: Nx.to_flat_list(predicted[k..(k + 3)]) |> Enum.uniq() |> length()
             ) == [1, 1, 1]
    end

    test "Gaussian mixtures" do
      assert_alike(fn x, _, _, key ->
        model = Cluster.GaussianMixture.fit(x, num_gaussians: 3, key: key, max_iter: 10)
        {model.means, Cluster.GaussianMixture.predict(model, x)}
      end)
    end

    test "by density" do
      model = assert_alike(fn x, _, _, _ -> Cluster.DBSCAN.fit(x, eps: 2.5, min_samples: 2) end)
      assert Nx.to_flat_list(model.labels) == List.flatten(for k <- 0..2, do: [k, k, k, k])
    end

    test "affinity propagation" do
      assert_alike(fn x, _, _, key ->
        model = Cluster.AffinityPropagation.fit(x, key: key, iterations: 30)
        model.labels
      end)
    end
  end

  describe "decomposes" do
    test "principal components" do
      assert_alike(fn x, _, _, _ ->
        model = Decomposition.PCA.fit(x, num_components: 2)

        {signed(model.components), model.explained_variance, model.singular_values, model.mean,
         Nx.abs(Decomposition.PCA.transform(model, x))}
      end)
    end

    test "truncated SVD" do
      assert_alike(fn x, _, _, key ->
        model = Decomposition.TruncatedSVD.fit(x, num_components: 2, key: key)
        {signed(model.components), model.singular_values}
      end)
    end
  end

  describe "regression" do
    test "linear, ridge and polynomial" do
      assert_alike(
        fn x, _, y, _ ->
          linear = Linear.LinearRegression.fit(x, y)
          ridge = Linear.RidgeRegression.fit(x, y, alpha: 0.5)
          polynomial = Linear.PolynomialRegression.fit(x[[.., 0..0]], y, degree: 2)

          {linear, Linear.LinearRegression.predict(linear, x), ridge,
           Linear.PolynomialRegression.predict(polynomial, x[[.., 0..0]])}
        end,
        tolerance: 4000
      )
    end

    test "logistic" do
      {_model, predicted} =
        assert_alike(fn x, labels, _, _ ->
          model = Linear.LogisticRegression.fit(x, labels, num_classes: 3, max_iterations: 20)
          {model, Linear.LogisticRegression.predict(model, x)}
        end)

      assert accuracy(predicted, labels()) == 1.0
    end

    test "support vectors" do
      assert_alike(fn x, labels, _, _ ->
        model = Linear.SVM.fit(x, labels, num_classes: 3, iterations: 10)
        Linear.SVM.predict(model, x)
      end)
    end

    test "isotonic" do
      assert_alike(fn _, _, y, _ ->
        x = Nx.iota({12})
        model = Linear.IsotonicRegression.fit(x, y)
        {model.x_thresholds, model.y_thresholds}
      end)
    end

    test "splines" do
      assert_alike(fn _, _, y, _ ->
        model = Interpolation.CubicSpline.fit(Nx.iota({12}), y)
        Interpolation.CubicSpline.predict(model, Nx.linspace(-1, 12, n: 9))
      end)
    end
  end

  describe "neighbours" do
    test "classify and regress" do
      {_, predicted, _} =
        assert_alike(fn x, labels, y, _ ->
          classifier = Neighbors.KNNClassifier.fit(x, labels, num_neighbors: 3, num_classes: 3)
          regressor = Neighbors.KNNRegressor.fit(x, Nx.new_axis(y, 1), num_neighbors: 3)
          x = Nx.add(x, 0.1)

          {Neighbors.KNNClassifier.predict_probability(classifier, x),
           Neighbors.KNNClassifier.predict(classifier, x),
           Neighbors.KNNRegressor.predict(regressor, x)}
        end)

      assert accuracy(predicted, labels()) == 1.0
    end

    test "in a tree" do
      assert_alike(fn x, _, _, _ ->
        tree = Neighbors.KDTree.fit(x, num_neighbors: 2)
        {neighbors, distances} = Neighbors.KDTree.predict(tree, Nx.add(x, 0.1))
        {tree.indices, neighbors, distances}
      end)
    end

    # Indices of several integer types.
    test "by descent" do
      assert_alike(fn x, _, _, key ->
        graph = Neighbors.NNDescent.fit(x[0..4], num_neighbors: 2, key: key, max_iterations: 1)
        {graph.nearest_neighbors, graph.distances}
      end)
    end

    test "naive Bayes" do
      {_, predicted} =
        assert_alike(fn x, labels, _, _ ->
          model = NaiveBayes.Gaussian.fit(x, labels, num_classes: 3)
          {model, NaiveBayes.Gaussian.predict(model, x)}
        end)

      assert accuracy(predicted, labels()) == 1.0
    end
  end

  describe "embeds" do
    test "by t-SNE" do
      assert_alike(
        fn x, _, _, key ->
          Manifold.TSNE.fit(x, key: key, perplexity: 3, num_iters: 3, init: :random)
        end,
        tolerance: 10_000
      )
    end

    test "by distances" do
      assert_alike(
        fn x, _, _, key ->
          Manifold.MDS.fit(x[0..4], key: key, n_init: 1, max_iter: 2)
        end,
        tolerance: 4000
      )
    end
  end

  test "metrics and scales" do
    assert_alike(fn x, labels, _, _ ->
      scaler = Preprocessing.StandardScaler.fit(x, axes: [0])
      predicted = Nx.remainder(Nx.add(labels, Nx.iota({12})), 3)

      {Preprocessing.StandardScaler.transform(scaler, x),
       Metrics.Classification.confusion_matrix(labels, predicted, num_classes: 3),
       Metrics.Classification.f1_score(labels, predicted, num_classes: 3),
       Metrics.Clustering.silhouette_score(x, labels, num_clusters: 3)}
    end)
  end
end
