"""Reading logs: finding the files of a job, live or harvested, and giving them to the analysis."""
