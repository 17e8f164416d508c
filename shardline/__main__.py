"""`python -m shardline`, the same as the `shardline` command."""

from shardline.cli.app import main

main(prog_name="shardline")
