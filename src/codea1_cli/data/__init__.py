"""Problems: where they come from and which of them a run can use."""
