"""The definitions that Dagster loads. Add your own versions to those of the demo."""

from assets.digits import digit_pairs_v1, digits_single, digits_v1, digits_v2
from shardline.dagster.definitions import build_definitions

defs = build_definitions(digits_v1, digits_single, digits_v2, digit_pairs_v1)
