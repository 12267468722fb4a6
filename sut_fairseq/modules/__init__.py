"""The numeric core: plain PyTorch modules built from numbers and other modules, never a config."""
