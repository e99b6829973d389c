"""One command for the whole stack: an embedded MongoDB, every program as a process, a live view, and a check at the end."""
