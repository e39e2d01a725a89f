"""The recipe: everything that decides a run, how it is read from files, and the batch arithmetic that follows from it."""
