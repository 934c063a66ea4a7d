"""The pure half of the plugin: it knows nothing of AstrBot (spec 1)."""
