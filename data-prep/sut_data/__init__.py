"""Data preparation: from published files, a grammar or your own text to folders for fairseq.

Its layers, each of which may import from those above it:

    errors, interrupts, files, tables, command_line    what every command of the repository shares
    text      from files of text to symbols: tokenisation, subwords, parallel text
    folders   prepared folders and raw files: stamps, binarising, downloads
    kit       building blocks of the data sets: options, examples, depths, corpora
    sets      one module or folder for each data set, found by its name
    doctor    checks of an installation; they must run even where torch does not

Nothing here imports torch or the package `sut_fairseq`.
"""
