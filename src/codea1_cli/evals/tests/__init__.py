"""How good are the tests that a model writes: whether they pass, what they cover, which mutants they kill."""
