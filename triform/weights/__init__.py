"""Released weights, both ways: name tables (one file per family), and reading and writing model folders.

The only package that knows other projects' names. `model_folder.read` and `model_folder.write` are its entry points.
"""
