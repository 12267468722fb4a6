"""The data sets: a module or a folder for each, named as its command is.

A set has `main(program, argv)`, which reads the options `argv` and prepares the set; `program` is
the command's name for its messages. The first line of its docstring is what `sut-prepare --help`
shows. `sut-prepare` finds what is here by its name: to add a set, add its file.
"""
