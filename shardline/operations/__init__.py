"""What can be done with TFRecord files and datasets."""
