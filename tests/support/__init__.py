"""What tests share: real upstreams, processes, clients and tables. No test module imports another."""
