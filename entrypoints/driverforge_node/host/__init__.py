"""The one gateway to the system: ports (protocols) and their real implementation."""
