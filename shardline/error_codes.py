"""The codes of all errors: stable names for scripts and tests, each with its meaning.

An error class has a default code; a raise site may choose a more specific code. Codes are in
alphabetical order.
"""

from __future__ import annotations

CODES: dict[str, str] = {
    "budget-exceeded": "The operation would write more than its budget allows.",
    "cancelled": "The operation was cancelled before it finished.",
    "commit-conflict": "The commit does not fit what another writer committed first.",
    "commit-state-unknown": "A write may or may not have happened: its reply was lost.",
    "conditional-write-unsupported": "The store ignores create-if-absent.",
    "corrupt-file": "A TFRecord file contains bytes that differ from what was written.",
    "corrupt-log": "A log entry or checkpoint differs from what was committed.",
    "corrupt-shard": "A shard of a version is corrupt.",
    "dagster-record-not-found": "A folder given as DAGSTER_HOME contains no Dagster records.",
    "error": "A problem without a code of its own.",
    "file-exists": "The output file exists already.",
    "file-not-found": "A file does not exist.",
    "index-mismatch": "An offset index does not belong to its file.",
    "invalid-argument": "An argument has a value that the operation does not accept.",
    "invalid-example": "A payload is not an Example that every parser reads alike.",
    "invalid-name": "A name, path or URI is malformed.",
    "invalid-rows": "More rows than allowed cannot become records.",
    "invalid-source": "A source cannot be read, or changed while it was read.",
    "invalid-usage": "The command line does not fit the command.",
    "kernel-unavailable": "The requested kernel cannot be loaded.",
    "log-error": "A log cannot be used.",
    "missing-argument": "A required argument or option is missing.",
    "no-intact-record": "A file contains no intact record to salvage.",
    "object-exists": "An object that must be new exists already.",
    "object-not-found": "An object does not exist.",
    "package-missing": "An optional package that the operation needs is not installed.",
    "record-too-large": "A record is larger than the limit.",
    "schema-mismatch": "Data or a declaration does not fit the schema.",
    "shard-mismatch": "A shard is not the file that was committed.",
    "snapshot-not-found": "The version has no such snapshot, tag or time.",
    "snapshot-unreadable": "The snapshot cannot be read in the requested way.",
    "storage-error": "The storage refused or failed a request.",
    "storage-unavailable": "The storage did not answer, or asked to retry later.",
    "system-error": "The operating system refused a request.",
    "tombstoned-shard": "A shard was erased or vacuumed and must not be committed again.",
    "udf-error": "A UDF or a table join does not produce the declared features.",
    "unknown-format": "A newer release wrote the log.",
    "unknown-option": "The command has no such option.",
    "unsynced-write": "A write is visible but may not survive a power failure.",
    "value-mismatch": "A feature's values do not fit the requested column.",
    "version-not-found": "The version or dataset does not exist.",
}
