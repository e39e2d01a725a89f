"""The judge: what a program is worth, by comparing its answers with the reference's in this process."""
