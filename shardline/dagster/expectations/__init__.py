"""Great Expectations suites on the rows of a snapshot."""
