"""What the formats share; a module here registers nothing."""
