"""From attention scores to attention weights; see `interface`."""
