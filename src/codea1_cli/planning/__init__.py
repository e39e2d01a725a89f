"""What a run needs before it is launched: memory, disk and time, from a recipe and the shape of its models. No torch."""
