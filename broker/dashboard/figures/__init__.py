"""Answers of the broker → what a page shows: plain rows, numbers and charts, without widgets and without asking anybody."""
