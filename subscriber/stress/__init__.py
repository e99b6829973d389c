"""The stress run: consumers that check whether a broker keeps its promises."""
