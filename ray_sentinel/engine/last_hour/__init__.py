"""What the page draws about the last hour: steps and calls, and what each rank or role did."""
