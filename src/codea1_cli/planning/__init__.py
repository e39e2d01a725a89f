"""What a run will need: memory, disk and time, from a recipe and the shape of its models. No torch."""
