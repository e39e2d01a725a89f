"""Where codea1 meets TRL; no other package imports it."""
