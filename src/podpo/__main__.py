import sys

from podpo.cli import main

sys.exit(main())
