"""Kafka, Postgres and an S3-compatible server for tests, the demo and development.

    with Stack.start(checkout) as stack:
        subprocess.run([...], env=os.environ | stack.environment())
        stack.kafka.kill()   # SIGKILL
        stack.kafka.start()  # returns when clients are served again

Each server is found on its own, in this order: an address in the environment, a Docker engine that answers, a local
process. `python -m devstack up|down|status` keeps one stack running for development.
"""

from devstack.errors import NoServersError, StackError
from devstack.server import Mode, Server, ServiceName
from devstack.stack import Stack

__all__ = ["Mode", "NoServersError", "Server", "ServiceName", "Stack", "StackError"]
