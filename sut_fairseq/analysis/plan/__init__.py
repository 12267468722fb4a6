"""Estimates of what a training will cost: time, memory and traffic on many GPUs."""
