"""Commands of the sweeps with an aftermath: `python aftermath_commands.py VERB FOLDER`.

A failure ends with exit code 1 and the error as JSON on stderr.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import timedelta
from pathlib import Path

from shardline.errors import ShardlineError
from shardline.operations.vacuum import vacuum
from tests.torture.data_commands import append_files, export_file, rebuild_folder, rebuild_in_place


def vacuum_now(folder: Path) -> None:
    """Delete everything that is not needed now."""
    vacuum(folder / "root", "digits", retention=timedelta(0), dry_run=False)


VERBS = {
    verb.__name__: verb
    for verb in (append_files, export_file, rebuild_folder, rebuild_in_place, vacuum_now)
}

if __name__ == "__main__":
    logging.basicConfig()
    try:
        VERBS[sys.argv[1]](Path(sys.argv[2]))
    except ShardlineError as error:
        sys.exit(json.dumps(error.to_dict()))
    except OSError as error:
        sys.exit(json.dumps({"code": "system-error", "message": error.strerror}))
