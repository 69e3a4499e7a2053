"""The fields of the appendices: a vote on a statement, the answer to a cold case."""
