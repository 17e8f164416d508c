"""Everything that Dagster loads: assets, checks, jobs and resources."""

import dagster as dg

from assets import DemoFolder, loose_files
from checks import integrity

demo = dg.define_asset_job(
    "demo",
    selection=dg.AssetSelection.groups("demo"),
    description="Make the demo's files and check them.",
)

defs = dg.Definitions(
    assets=[loose_files],
    asset_checks=[integrity],
    jobs=[demo],
    resources={"demo_folder": DemoFolder()},
    # Few, large steps: the engine runs shards side by side, so a process per step buys nothing.
    executor=dg.in_process_executor,
)
