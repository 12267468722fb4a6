"""The data sets: a module or a folder for each, named like its command.

A set has `main(program, argv)`, which reads the options `argv` and prepares the set; `program` is
the command's name for its messages. The first line of its docstring is what `sut-prepare --help`
shows. `sut-prepare` finds the sets by their file names: to add a set, add its file.
"""
