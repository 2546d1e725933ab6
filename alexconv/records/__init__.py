"""Record files, what they say of the machine, and rows and statistics made from them."""
