"""OpenAI's routes: request and response types, completions, chat, constrained output."""
