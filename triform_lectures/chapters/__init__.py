"""The chapters, one file each: lessons in the order they are read."""
