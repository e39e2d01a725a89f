"""BigCodeBench: tasks, prompts, sample files, and verdicts that equal those of its own checker."""
