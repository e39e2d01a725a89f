"""The judge: verdicts on programs, by comparing their answers with the reference's in this process."""
