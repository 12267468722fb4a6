"""Conditional computation: a router, experts, and the mixtures built from them."""
