"""The auto-ack stress subscriber: reads topics, settles everything at once and tells whether anything was lost or doubled."""
