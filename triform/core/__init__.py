"""The Transformer. Silent and pure: knows nothing of files, text, tasks, logging or other people's weight names."""
