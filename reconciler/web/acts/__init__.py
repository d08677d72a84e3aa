"""Acts of visitors. An act is one function for both: programs use the API, people a form of the console."""
