"""What a training costs before it is started: time, memory and traffic on many GPUs."""
