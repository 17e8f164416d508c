"""The asset checks: what must hold before anything downstream may read."""

from checks.gate import Gate

__all__ = ["Gate"]
