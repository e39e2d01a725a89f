"""The generator of the embedded world: families of functions, the problems that ship, and the model's corpus."""
