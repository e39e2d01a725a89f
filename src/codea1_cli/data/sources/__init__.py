"""Where problems come from: one module a source, each from what somebody published to `Problem`."""
