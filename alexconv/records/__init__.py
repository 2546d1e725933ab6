"""Record files, the facts of the machine in them, and rows and statistics made from them."""
