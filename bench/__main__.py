"""All benches, one after another. Run them with nothing else running."""

from bench import forward, load

forward.main()
load.main()
