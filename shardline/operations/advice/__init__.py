"""What to do next, as commands to paste: told by repair, vacuum, audit and the readers."""
