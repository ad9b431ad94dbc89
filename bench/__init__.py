"""Side by side with the peers, in one run: a process for each contender, rounds interleaved, equal threads."""
