"""The inside of repair: of what a damaged shard is made anew, and what is left of it."""
