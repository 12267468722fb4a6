"""Attenders: what a recurrent decoder looks at."""
