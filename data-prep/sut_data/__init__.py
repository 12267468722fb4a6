"""Data preparation: from published files, a grammar or your own text to folders for fairseq.

The rooms, each of which may use those before it:

    errors, interrupts, files, tables, command_line    what every command of the repository shares
    text      from files of text to symbols: tokenisation, subwords, parallel text
    folders   what is written and where raw files come from: stamps, binarising, downloads
    kit       what data sets are made with: options, examples, depths, corpora
    sets      one module or folder for each data set, found by its name
    doctor    checks of an installation, which must run where torch does not

Nothing here imports torch or the package `sut_fairseq`.
"""
