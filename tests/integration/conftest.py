"""A tiny data set and what every command of these tests is given."""

from __future__ import annotations
