"""What runs in processes of its own. Peers' modules import the standard library and their peer alone."""
