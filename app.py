"""CDK entry point: `cdk synth -c env=prod`."""

from __future__ import annotations

from infra.synth import main

if __name__ == "__main__":
    main()
