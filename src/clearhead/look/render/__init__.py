"""Drawing what was computed: figures (matplotlib), terminal (rich), HTML pages and notebook widgets (js/)."""
