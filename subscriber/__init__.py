"""The auto-ack stress subscriber: reads topics, settles at once and tells whether anything was lost or doubled."""
