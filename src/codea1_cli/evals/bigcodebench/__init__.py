"""BigCodeBench: its tasks, the environment they run in, and their scores."""
