"""What generated tests are worth: mutants killed, lines and branches covered, right answers stated."""
