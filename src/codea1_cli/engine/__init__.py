"""Two TRL trainers in Ray actors and the arena in which they meet."""
