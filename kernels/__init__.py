"""The ladder: one ``.cu`` per rung, the headers they share, and the table that describes them."""
