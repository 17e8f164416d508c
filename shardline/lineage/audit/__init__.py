"""The parts of an audit, each about one thing that a history claims."""
