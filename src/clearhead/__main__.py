"""`python -m clearhead` is the `clearhead` command."""

from clearhead.cli.main import main

if __name__ == "__main__":
    main()
