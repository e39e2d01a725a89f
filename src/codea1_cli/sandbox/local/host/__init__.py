"""The local backend's side in this process: the pool of workers, and what it makes of a child's answers."""
