"""What the page of `sut-report` shows, as plain data that JSON can hold."""
