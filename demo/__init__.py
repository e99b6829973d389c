"""One command for the whole stack: an embedded MongoDB, each program as a process, a live view, a closing check."""
