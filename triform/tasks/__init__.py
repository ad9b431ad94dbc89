"""One file a task: its rows, its objective, its metric, how it is run, what it answers."""
