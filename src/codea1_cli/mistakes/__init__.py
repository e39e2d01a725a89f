"""The Mistake Book of a run on disk, and the views of it that people and pytest read."""
