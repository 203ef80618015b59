"""Reading logs: finds the files of a job, live or harvested, and passes them to the analysis."""
