"""The computing side: one worker thread per model, its queues, its memory plan, and the service that owns them."""
