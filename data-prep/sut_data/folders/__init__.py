"""What is written, and where raw files come from: prepared folders, binarising, downloads."""
