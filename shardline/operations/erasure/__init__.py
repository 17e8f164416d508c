"""The inside of erase: which records are meant, where they are, what is left of them."""
