# bin/bench sets up and runs this.
for file <-
      ~w(inputs workloads functions engine custom server peer compare rounds report chart command),
    do: Code.require_file("compare/#{file}.ex", __DIR__)

unless Bench.Command.run(System.argv()), do: exit({:shutdown, 1})
