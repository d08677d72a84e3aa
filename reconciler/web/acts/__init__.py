"""Acts of visitors. One function does an act, for programs through the API and for people through a form of the
console."""
