"""A fleet on one page: what is wrong with which table, what it costs, what was done and whether it helped."""
