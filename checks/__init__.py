"""The asset checks: what must hold before anything downstream may read."""

from checks.integrity import integrity

__all__ = ["integrity"]
