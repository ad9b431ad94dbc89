"""The Transformer as PyTorch modules. Knows nothing of files, text, tasks, logging or other projects' weight names."""
