"""The handlers of all commands, in the same families as in the protocol. `table` joins the families into one table."""
