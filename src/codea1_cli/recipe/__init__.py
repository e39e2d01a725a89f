"""The recipe: everything that decides a run, how it is read from files, and what follows from it."""
