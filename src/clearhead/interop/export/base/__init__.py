"""What the exports share; a module here registers nothing."""
