"""Analysis of models: what they cost and what they do."""
