"""What ``tidegate init`` and ``tidegate new`` write: text files with ``@NAME@`` where the pipeline's name belongs."""
