"""Programs that tests of the surfaces run as processes of their own."""
