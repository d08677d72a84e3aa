"""What visitors do. An act is one function, whoever asks: a program over the API, or a form of the console."""
