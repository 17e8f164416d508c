"""What every test shares: temporary folders in memory, steady property tests, S3 servers."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.sampling import SEED_VARIABLE, sample_seed
from tests.storage.servers import careless_s3_root, rclone, s3_root, seaweedfs

__all__ = ["careless_s3_root", "rclone", "s3_root", "seaweedfs"]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
_MEMORY_NEEDED = 4 * 2**30

if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK)
    and shutil.disk_usage(_MEMORY).free >= _MEMORY_NEEDED
):
    # Thousands of commits sync their files: on a disk that takes most of the time.
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None


def pytest_report_header() -> str:
    """Show the seed of the samples."""
    return f"samples: {SEED_VARIABLE}={sample_seed()}"


settings.register_profile(
    "shardline",
    derandomize=True,
    max_examples=50,  # the same ones on every run, so more of them find nothing new
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shardline")
