"""Files on disk: read inside one folder and within bounds, written whole or not at all, by one process at a time."""
