"""What is shown of rows files: HTML, markdown, differences, and what CI asks for. Nothing here runs a model."""
