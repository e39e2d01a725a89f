"""Problems: what one is, the files that hold them, the benchmarks' files, and the prompts made of them."""
