"""Anthropic's routes: messages, and how many tokens they have."""
