"""Where codea1 meets TRL: `trl` is imported nowhere else."""
