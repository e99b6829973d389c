"""One topic and what it owns: its log's newest lines, its lanes, its producers, its documentation, its subscriptions."""
