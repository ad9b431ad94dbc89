"""One file per family: its names and its config fields, each a table that is used for reading and for writing."""
