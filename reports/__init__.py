"""Tables and figures from record files.  Nothing here touches a device."""
