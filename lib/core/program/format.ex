defmodule Mlx.Program.Format do
  @moduledoc false
  # The bytes of a program's file: a magic line, a version, a checksum, and a term in Erlang's
  # external format. Whoever has a file may have changed it, checksum and all, so nothing is read
  # before its bytes are known to be of the few kinds that programs are made of: no functions, pids
  # or references, whose reading leaves something behind in the VM, and nothing compressed, of which
  # a few bytes become gigabytes. Atoms are never made.

  @magic "MLX program\n"
  @version 1

  @type parts :: {inputs :: list, instructions :: list, outputs :: list}

  @doc "The bytes of a program."
  @spec encode(parts) :: iodata
  def encode({inputs, instructions, outputs}) do
    data = :erlang.term_to_binary({inputs, instructions, outputs}, [:deterministic])
    [@magic, @version, :erlang.md5(data), data]
  end

  @doc "What the bytes hold, three lists that nobody has looked into, or why they hold nothing."
  @spec decode(binary) :: {:ok, parts} | {:error, String.t()}
  def decode(<<@magic, @version, checksum::binary-16, data::binary>>) do
    cond do
      :erlang.md5(data) != checksum ->
        {:error, "is damaged: its checksum does not match; copy or make it again"}

      not plain?(data) ->
        unreadable("it holds what no program is made of")

      true ->
        read(data)
    end
  end

  def decode(<<@magic, version, _::binary>>) do
    {:error,
     "has format version #{version}, and this version of Mlx reads #{@version}; update Mlx"}
  end

  def decode(_other), do: {:error, "is not a program written by Mlx.Program.save!/2"}

  @doc "Says why a file that is whole is not a program."
  @spec unreadable(String.t()) :: {:error, String.t()}
  def unreadable(why), do: {:error, "is not a program that this version reads: #{why}"}

  defp read(data) do
    case :erlang.binary_to_term(data, [:safe, :used]) do
      {{inputs, instructions, outputs}, used}
      when used == byte_size(data) and is_list(inputs) and is_list(instructions) and
             is_list(outputs) ->
        {:ok, {inputs, instructions, outputs}}

      _ ->
        unreadable("it does not hold the parts of one")
    end
  rescue
    ArgumentError -> unreadable("it names what this version does not know, or is cut short")
  end

  # Whether there are numbers, atoms, binaries, tuples and lists only. What is inside of a tuple or a
  # list follows its head, so that one walk along the bytes sees all of it.
  defp plain?(<<131, terms::binary>>), do: terms?(terms)
  defp plain?(_), do: false

  # Small and other integers, floats, tuples, the empty list, lists.
  defp terms?(<<97, _, rest::binary>>), do: terms?(rest)
  defp terms?(<<98, _::32, rest::binary>>), do: terms?(rest)
  defp terms?(<<110, size, _sign, _::binary-size(size), rest::binary>>), do: terms?(rest)
  defp terms?(<<70, _::64, rest::binary>>), do: terms?(rest)
  defp terms?(<<104, _, rest::binary>>), do: terms?(rest)
  defp terms?(<<105, _::32, rest::binary>>), do: terms?(rest)
  defp terms?(<<106, rest::binary>>), do: terms?(rest)
  defp terms?(<<108, _::32, rest::binary>>), do: terms?(rest)
  # Lists of bytes, binaries, atoms.
  defp terms?(<<107, size::16, _::binary-size(size), rest::binary>>), do: terms?(rest)
  defp terms?(<<109, size::32, _::binary-size(size), rest::binary>>), do: terms?(rest)
  defp terms?(<<119, size, _::binary-size(size), rest::binary>>), do: terms?(rest)
  defp terms?(<<118, size::16, _::binary-size(size), rest::binary>>), do: terms?(rest)
  defp terms?(<<100, size::16, _::binary-size(size), rest::binary>>), do: terms?(rest)
  defp terms?(rest), do: rest == <<>>
end
