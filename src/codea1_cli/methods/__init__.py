"""Training methods: which policies one trains, what each of them samples, and how a step is scored."""
