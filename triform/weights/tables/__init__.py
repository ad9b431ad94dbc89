"""One file a family: its names and its config fields, each a table that is read both ways."""
