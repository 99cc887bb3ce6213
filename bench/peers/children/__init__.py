"""Programs with their own processes. Those of peers import only the standard library and their peer."""
