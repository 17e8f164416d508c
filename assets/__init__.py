"""The assets of this deployment: one module for each dataset."""
