"""The definitions that Dagster loads. Add your own versions and checks to those of the demo."""

import dagster as dg

from assets.digits import digit_pairs_v1, digits_single, digits_v1, digits_v2
from checks.digits import image_size
from shardline.dagster.definitions import build_definitions

defs = dg.Definitions.merge(
    build_definitions(digits_v1, digits_single, digits_v2, digit_pairs_v1),
    dg.Definitions(asset_checks=[image_size]),
)
