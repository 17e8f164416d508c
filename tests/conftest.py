"""What every test shares: property tests with the same verdict on every run, and S3 servers."""

import os

from hypothesis import HealthCheck, settings

from tests.storage.servers import careless_s3_root, rclone, s3_root, seaweedfs

__all__ = ["careless_s3_root", "rclone", "s3_root", "seaweedfs"]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

settings.register_profile(
    "shardline",
    derandomize=True,
    max_examples=50,  # the same ones on every run, so more of them find nothing new
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shardline")
