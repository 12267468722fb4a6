"""Building blocks of the data sets: options, examples, depths and corpora."""
