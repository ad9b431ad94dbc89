"""Files on disk: read within bounds and inside one folder, written whole or not at all, by one process at a time."""
