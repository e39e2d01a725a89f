"""Runs model-written programs and says what each test came to."""
