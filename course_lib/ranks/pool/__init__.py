"""The pool of ranks as the notebook sees it: what it sends, takes, waits for and reports."""
