"""What is told of a run: its progress, its summary, its picture, and what to do about it."""
