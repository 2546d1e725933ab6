"""Tables and figures from record files.  No module here needs a device or an executor."""
