[
  inputs: ["{mix,.formatter}.exs", "{bench,config,examples,lib,native,test}/**/*.{ex,exs}"],
  line_length: 98,
  # Written out rather than imported, so that formatting works where Nx is not.
  locals_without_parens:
    [defn: 1, defn: 2, defnp: 1, defnp: 2, deftransform: 1, deftransform: 2] ++
      [deftransformp: 1, deftransformp: 2, while: 3] ++
      [unary: 1, host: 1, arith: 1, compare: 1, lower: 4, compose: 4, hosted: 4] ++
      [property: 3, property: 4]
]
