"""Convert the broker's answers to the contents of a page: plain rows, numbers and charts, without widgets or requests."""
