"""What lies on a disk: archives in volumes, and packages in folders."""
