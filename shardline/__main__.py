"""`python -m shardline`, the same as the `shardline` command."""

from shardline.cli.app import run

run()
