"""Released weights, both ways: name tables (one file a family), and the safe reading and writing of a model folder.

The only room that knows other projects' words. `folder.read` and `folder.write` are its doors.
"""
