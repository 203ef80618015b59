"""What the page draws of the last hour: steps and calls, and what each rank or role did."""
