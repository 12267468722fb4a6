"""What data sets are made with: their options, examples, depths and corpora."""
