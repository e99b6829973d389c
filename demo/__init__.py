"""One command for the whole stack: an embedded MongoDB, every program as a process, a live view, a closing check."""
