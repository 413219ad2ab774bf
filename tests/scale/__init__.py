"""Several replicas on one machine: `make test-scale`. They need servers, so `make test` leaves them out."""
