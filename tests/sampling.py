"""The seed of samples: the suite runs a sample of each sweep, and another sample every day.

SHARDLINE_SAMPLE_SEED sets the seed, to run the sample of another day again.
"""

import os
from datetime import UTC, datetime

SEED_VARIABLE = "SHARDLINE_SAMPLE_SEED"


def sample_seed() -> str:
    """Return the seed that is set, or else today's date in UTC."""
    return os.environ.get(SEED_VARIABLE) or datetime.now(UTC).date().isoformat()
