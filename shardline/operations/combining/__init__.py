"""How combinations are planned and their pairs made: `combine.py` and `combine_files.py` use it."""
