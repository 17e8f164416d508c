"""The commands: one module each, with its options, its work and its output."""
