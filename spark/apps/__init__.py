"""The programs: the jobs, the backfill, the console, the plot."""
