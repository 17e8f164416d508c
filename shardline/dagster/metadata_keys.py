"""Keys of the metadata and tags that Shardline writes to Dagster.

Plots, alerts and the audit read events by these keys. A number is written under the same key on
every event of an asset, also when it is zero, because the UI plots it.
"""

OPERATION_TAG = "shardline/operation"
"""Tag of an asset: the operation that commits to its version."""

# A snapshot, on materializations and checks.
SNAPSHOT = "shardline/snapshot"
ENTRY = "shardline/entry"
CONTENT_DIGEST = "shardline/content_digest"
ENTRY_DIGEST = "shardline/entry_digest"
BYTES = "shardline/bytes"
SHARDS = "shardline/shards"
PUBLISHED_SNAPSHOT = "shardline/published_snapshot"
PUBLISHED_ROWS = "shardline/published_rows"
RECOVERED = "shardline/recovered"
"""True if another run committed the snapshot and ended before it could report it."""

# What a materialization did.
ADDED_ROWS = "shardline/added_rows"
ADDED_BYTES = "shardline/added_bytes"
ADDED_SHARDS = "shardline/added_shards"
COMPUTED_SHARDS = "shardline/computed_shards"
REUSED_SHARDS = "shardline/reused_shards"
COMPUTED_PAIRS = "shardline/computed_pairs"
QUARANTINED_ROWS = "shardline/quarantined_rows"
QUARANTINE = "shardline/quarantine"
REJECTED_SOURCES = "shardline/rejected_sources"
DUPLICATE_SOURCES = "shardline/duplicate_sources"
ROWS_PER_SECOND = "shardline/rows_per_second"
BYTES_PER_SECOND = "shardline/bytes_per_second"

# What people look at on the page of an asset.
PREVIEW = "shardline/preview"
READ_CODE = "shardline/read_code"
COMMANDS = "shardline/commands"
SOURCES = "shardline/sources"
UPSTREAM_SNAPSHOTS = "shardline/upstream_snapshots"
UPSTREAM_COLUMNS = "shardline/upstream_columns"

# An exported file.
FILE = "shardline/file"
FILE_SHA256 = "shardline/file_sha256"
COMPRESSION = "shardline/compression"
IS_WRITTEN = "shardline/is_written"

# The plan of a materialization.
SOURCES_TO_APPEND = "shardline/sources_to_append"
SHARDS_TO_READ = "shardline/shards_to_read"
ROWS_TO_READ = "shardline/rows_to_read"
BYTES_TO_READ = "shardline/bytes_to_read"
SHARDS_TO_COMPUTE = "shardline/shards_to_compute"
SHARDS_TO_REUSE = "shardline/shards_to_reuse"
SHARDS_TO_DROP = "shardline/shards_to_drop"
PAIRS_TO_COMPUTE = "shardline/pairs_to_compute"
BYTES_TO_WRITE = "shardline/bytes_to_write"
IS_UPPER_BOUND = "shardline/is_upper_bound"
IS_INCREMENTAL = "shardline/is_incremental"
INPUT_SNAPSHOT = "shardline/input_snapshot"
COLUMNS = "shardline/columns"

# The checks `integrity` and `schema`.
SHARDS_READ = "shardline/shards_read"
BYTES_READ = "shardline/bytes_read"
ATTESTED_SHARDS = "shardline/attested_shards"
ATTESTED_ENTRY = "shardline/attested_entry"
ATTESTED_TIME = "shardline/attested_time"
PROBLEMS = "shardline/problems"
FIRST_PROBLEMS = "shardline/first_problems"

# The check `published`.
BLOCKERS = "shardline/blockers"

# The check `expectations`.
EXPECTATIONS = "shardline/expectations"
FAILED_EXPECTATIONS = "shardline/failed_expectations"
EXPECTATION_RESULTS = "shardline/expectation_results"
ROWS = "shardline/rows"
CHECKED_ROWS = "shardline/checked_rows"
CHECKED = "shardline/checked"
SUITE_DIGEST = "shardline/suite_digest"
DATA_DOCS = "shardline/data_docs"

# The check `drift`.
MAX_DRIFT = "shardline/max_drift"
DRIFTED_COLUMNS = "shardline/drifted_columns"
COLUMN_DRIFT = "shardline/column_drift"
NEW_ROWS = "shardline/new_rows"
COMPARED_NEW_ROWS = "shardline/compared_new_rows"
COMPARED_PUBLISHED_ROWS = "shardline/compared_published_rows"
COMPARED = "shardline/compared"

# The checks `volume` and `sources_accepted`.
COMPARED_APPENDS = "shardline/compared_appends"
USUAL_ROWS = "shardline/usual_rows"
USUAL_SPREAD = "shardline/usual_spread"
REJECTED_TABLE = "shardline/rejected"
DUPLICATES_TABLE = "shardline/duplicates"

# A check without a result.
ERROR_CODE = "shardline/error_code"
NOT_EVALUATED = "shardline/not_evaluated"

# The audit.
REPORT = "shardline/report"
VERSIONS = "shardline/versions"
ENTRIES = "shardline/entries"
ERRORS = "shardline/errors"
WARNINGS = "shardline/warnings"
NOTES = "shardline/notes"
FINDINGS = "shardline/findings"
