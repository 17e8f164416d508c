"""Where data comes from, whether its history is true, and how to tell others."""
