"""Code benchmarks whatever their origin: sample files, statistics, comparison, results."""
