"""Prepared folders and raw files: stamps, binarising, downloads."""
